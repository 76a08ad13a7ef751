package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/itest/history"
)

// longestIdle is for how long a key may be free while somebody waits for it and nothing is broken.
const longestIdle = int64(time.Second + Slack)

// LongestIdle is the bound of the checks idle and sets. It is also how much later than another one
// a waiter may come and still get a key first.
const LongestIdle = time.Duration(longestIdle)

// idle: while nothing is broken, a key for which somebody waits is not free for long. A lost
// wake-up may cost a second, but not all of a waiter's patience. For a waiter that would share it,
// a key is free while nobody has it alone or waits to have it alone. The same is checked for
// permits (see idlePermits), and that no process keeps a permit that nobody in it has (see
// keptPermits).
func idle(run *history.Run, rules Rules) (found []Finding) {
	for key, asked := range byKey(run) {
		disturbed := disturbed(run, rules, key)
		first := run.End // grant
		for _, a := range asked {
			if a.Granted != 0 {
				first = min(first, a.Granted)
			}
		}
		for _, a := range asked {
			if a.Set != 0 || waited(a) <= longestIdle || IsProbe(a) && first >= a.Granted {
				continue // of a set, see sets; of a probe, see liveness
			}
			if long, ok := lengthy(run, a, blocked(run, a, asked), disturbed); ok {
				role := "held the key"
				if a.Shared {
					role = "held the key alone, or waited to"
				}
				found = append(found, Finding{Check: "idle", Key: key, At: long.from,
					Text: fmt.Sprintf("%v waited for %v while nobody %s and nothing was broken", a,
						time.Duration(long.to-long.from), role)})
			}
		}
	}
	return oneEach(slices.Concat(found, idlePermits(run, rules), keptPermits(run, rules)))
}

// byKey returns all acquisitions except those of permits, because a waiter for a permit waits for
// any slot.
func byKey(run *history.Run) map[string][]*history.Acquisition {
	asked := make(map[string][]*history.Acquisition)
	for _, a := range run.Acquisitions {
		if a.Semaphore == "" {
			asked[a.Key] = append(asked[a.Key], a)
		}
	}
	return asked
}

// oneEach keeps only the first finding for each moment and key, because many may wait for one key.
func oneEach(found []Finding) []Finding {
	found = inOrder(found)
	return slices.CompactFunc(found, func(a, b Finding) bool {
		return a.Key == b.Key && a.At == b.At
	})
}

// answered returns when a call of Acquire returned. If it did not, that is the end of its process
// or of the run.
func answered(run *history.Run, a *history.Acquisition) int64 {
	return cmp.Or(max(a.Granted, a.Refused), a.Stopped(), run.End)
}

// waited returns for how long a call of Acquire waited, if it has returned; see overdue for others.
func waited(a *history.Acquisition) int64 { return max(a.Granted, a.Refused) - a.Asked }

// freed returns when a granted lock was free for others. If it is not certain that it was released,
// its lease has to run out.
func freed(a *history.Acquisition) int64 {
	if a.Released == 0 || a.Unclear != "" {
		return max(a.End(), a.Until)
	}
	return a.End()
}

// blocked returns the spans in which an acquisition could not have the key, because another
// acquisition had it or was to have it before.
func blocked(run *history.Run, a *history.Acquisition,
	others []*history.Acquisition) (spans []span) {
	from, to := a.Asked, answered(run, a)
	for _, other := range others {
		// It waited, and held nothing unless it is a part of a set.
		s := span{other.Asked, answered(run, other)}
		if other.Set == 0 && (other.Shared || !a.Shared) {
			s.from = s.to
		}
		if other.Granted != 0 {
			s.to = freed(other)
			if a.Shared && other.Shared {
				s = span{}
			} else if a.Shared && other.Lowered != 0 {
				s.to = min(s.to, other.Lowered)
			}
		}
		if other != a && s.from < s.to && s.from < to && s.to > from {
			spans = append(spans, s)
		}
	}
	return spans
}

// lengthy returns a part of an acquisition's wait that is so long that it should have been granted,
// if there is one. A busy machine often stalls for a moment. Such a stall does not count, and does
// not make the wait begin again.
func lengthy(run *history.Run, a *history.Acquisition, without ...[]span) (long span, ok bool) {
	parts := quiet(span{a.Asked, answered(run, a)}, without...)
	stalls := starved(run, a.Client)
	i := slices.IndexFunc(parts, func(s span) bool {
		return length(quiet(s, stalls)) > longestIdle
	})
	if i < 0 {
		return span{}, false
	}
	return parts[i], true
}

// sets: while nothing is broken, a set does not wait for long while nobody has any of the keys that
// sets ask for: then they wait for each other.
func sets(run *history.Run, rules Rules) (found []Finding) {
	parts := make(map[string][]*history.Acquisition) // of each set
	asked := make(map[string]bool)
	for _, a := range run.Acquisitions {
		if a.Set != 0 {
			id := fmt.Sprintf("%s/%d", a.Client, a.Set)
			parts[id] = append(parts[id], a)
			asked[a.Key] = true
		}
	}
	var held, broken []span
	for key := range asked {
		broken = append(broken, disturbed(run, rules, key)...)
		for _, a := range run.Granted(key) {
			held = append(held, span{a.Granted, freed(a)})
		}
	}
	for id, all := range parts {
		a := all[0]
		if waited(a) <= longestIdle {
			continue
		}
		if long, ok := lengthy(run, a, held, broken); ok {
			found = append(found, Finding{Check: "sets", Key: a.Key, At: long.from,
				Text: fmt.Sprintf("the set %s of %d keys waited for %v while nobody held any key "+
					"of a set and nothing was broken", id, len(all),
					time.Duration(long.to-long.from))})
		}
	}
	return oneEach(found)
}

// starvation: while nothing is broken, a waiter is not overtaken by one of another process that
// came much later, whether they read or write. A waiter behind others of its own process is not at
// the server yet. Nor is a set, for all of its keys. On several servers the order rests on the
// clocks of clients. A process may hand the key on to its own waiters for a moment.
func starvation(run *history.Run, rules Rules) (found []Finding) {
	if rules.Skewed && rules.Nodes > 1 {
		return nil
	}
	for key, asked := range byKey(run) {
		disturbed := disturbed(run, rules, key)
		for i, a := range asked {
			if a.Set != 0 || IsProbe(a) || waited(a) <= longestIdle ||
				slices.ContainsFunc(asked[:i], func(other *history.Acquisition) bool {
					return other.Client == a.Client && (over(other) == 0 || over(other) >= a.Asked)
				}) {
				continue
			}
			parts := quiet(span{a.Asked, answered(run, a)}, disturbed)
			stalls := starved(run, a.Client)
			for _, b := range asked[i+1:] {
				if !wentFirst(b, a, parts, stalls) || handedOn(run, b, asked, parts, stalls) {
					continue
				}
				found = append(found, Finding{Check: "starvation", Key: key, At: b.Granted,
					Text: fmt.Sprintf("%v waited for %v, and %s, who came %v later, had the key first",
						a, time.Duration(waited(a)), described(b),
						time.Duration(b.Asked-a.Asked))})
				break
			}
		}
	}
	return found
}

// wentFirst reports whether b, of another process, had the key in one of the parts of a's wait, and
// asked for it much later than that part began. Stalls of a do not count.
func wentFirst(b, a *history.Acquisition, parts, stalls []span) bool {
	return b.Client != a.Client && b.Granted != 0 && slices.ContainsFunc(parts,
		func(s span) bool { return b.Granted <= s.to && late(b, s, stalls) })
}

// late reports whether b asked much later than s began.
func late(b *history.Acquisition, s span, stalls []span) bool {
	return length(quiet(span{s.from, b.Asked}, stalls)) > longestIdle
}

// handedOn reports whether b had the key from its own process, which had it in its turn: one on the
// same terms, that did not come much later than a, had it a moment before, or as a reader with b.
func handedOn(run *history.Run, b *history.Acquisition, asked []*history.Acquisition,
	parts, stalls []span) bool {
	const aftermath = int64(250 * time.Millisecond) // of a release or a renewal, on a busy machine
	return slices.ContainsFunc(asked, func(c *history.Acquisition) bool {
		sameTerms := c.Shared == b.Shared || b.Shared && c.Lowered != 0
		if c == b || c.Client != b.Client || c.Granted == 0 || !sameTerms ||
			c.Granted > b.Granted && !b.Shared ||
			slices.ContainsFunc(parts, func(s span) bool { return late(c, s, stalls) }) {
			return false
		}
		between := span{min(b.Granted, c.Granted), max(b.Granted, c.Granted)}
		return !takenBetween(b, between, asked) &&
			length(quiet(between, starved(run, b.Client))) <=
				aftermath+int64(holdfast.DefaultCohortSpan)
	})
}

// takenBetween reports whether another process than that of b was granted the key meanwhile.
// Readers of several processes have it at the same time.
func takenBetween(b *history.Acquisition, between span, asked []*history.Acquisition) bool {
	return slices.ContainsFunc(asked, func(d *history.Acquisition) bool {
		return d.Client != b.Client && d.Granted > between.from && d.Granted < between.to &&
			!(d.Shared && b.Shared)
	})
}
