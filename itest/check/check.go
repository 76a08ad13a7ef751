// Package check tells from a history whether promises were kept, and whether that shows anything.
//
// Each check is a function from a history to the findings that it makes. A finding is excused if a
// fault broke an assumption that the promise is documented to rest on, and if that explains it: at
// the server that granted the key twice, on that key, and between its two grants. Then it is a
// limit, shown at work, and is reported as such.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// Finding is a promise that was not kept, as a check found it.
type Finding struct {
	Check  string // name of the check
	Store  string // that was written to; empty: none
	Key    string // of the lock; empty: none
	Text   string // what was seen
	At     int64  // when
	Excuse string // the broken assumption; empty for a violation
	// where and when it was broken, and between which answers of servers; empty if nothing is known
	// of that
	Because string
	// nothing was shown, because the machine was too busy: a search or a probe took too long, or
	// clients were never undisturbed; that is a violation, too
	Open bool
}

// String describes the finding.
func (f Finding) String() string {
	s := fmt.Sprintf("%s: %s: %s", f.Check, f.Key, f.Text)
	if f.Store != "" {
		s = fmt.Sprintf("%s: %s: %s: %s", f.Check, f.Store, f.Key, f.Text)
	}
	switch {
	case f.Because != "":
		s += " (" + f.Excuse + ": " + f.Because + ")"
	case f.Excuse != "":
		s += " (" + f.Excuse + ")"
	}
	return s
}

// Rules says what the checks have to know about the run.
type Rules struct {
	TTL   time.Duration // of all locks
	Guard time.Duration // the restart quarantine
	// by how much the lease of a process that was killed may outlive its TTL
	Linger time.Duration
	Nodes  int // servers that vote, called n1 and so on; 0 is 1
	Stale  int // late writes that are to be tried on each guarded store
	// the wall clocks of clients differ, by which they queue at several servers
	Skewed bool
}

// RulesOf returns those of a run that was recorded with its setup.
func RulesOf(run *history.Run) Rules {
	return Rules{TTL: time.Duration(run.Setup.TTL), Guard: time.Duration(run.Setup.Guard),
		Linger: time.Duration(run.Setup.Linger), Nodes: run.Setup.Count, Stale: run.Setup.Stale,
		Skewed: run.Setup.Skewed}
}

// wake is how long a fault may be felt after its end: the leases of a client that was cut off run
// out, and a quarantine ends.
func (r Rules) wake() time.Duration { return r.TTL + r.Guard + r.Linger }

// Checks are all checks, by name.
var Checks = map[string]func(*history.Run, Rules) []Finding{
	"exclusion":       exclusion,
	"tokens":          tokens,
	"register":        register,
	"linearizability": linearizability,
	"loss":            loss,
	"idle":            idle,
	"sets":            sets,
	"starvation":      starvation,
	"downgrades":      downgrades,
	"liveness":        liveness,
	"leaks":           leaks,
	"acknowledged":    acknowledged,
	"rising":          rising,
	"sole":            sole,
	"owners":          owners,
	"guards":          guards,
	"permits":         permits,
}

// Recorded makes all checks of a run of the laboratory by its own rules, and checks whether the run
// has shown anything. It returns what the checks and the laboratory itself found, in the order of
// time.
func Recorded(run *history.Run) []Finding {
	return inOrder(append(All(run, RulesOf(run)), shown(run)...))
}

// All makes all checks of a history of any kind, and returns what they and the laboratory itself
// found, in the order of time.
func All(run *history.Run, rules Rules) []Finding {
	var found []Finding
	for _, check := range Checks {
		found = append(found, check(run, rules)...)
	}
	for _, v := range run.Violations {
		found = append(found, Finding{Check: v.Name, Text: v.Err, At: v.At})
	}
	return inOrder(found)
}

func inOrder(found []Finding) []Finding {
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Check, b.Check),
			cmp.Compare(a.Text, b.Text))
	})
	return found
}

// Violations returns the findings without an excuse.
func Violations(found []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f Finding) bool { return f.Excuse != "" })
}

// exclusion: at any moment at most one acquisition of a key is valid, or several that share it.
// Each slot of a semaphore is a key, here and in all checks that do not tell permits apart. An
// acquisition is valid from when Acquire returned until its holder released it, was told of its
// loss, or its last deadline passed. From the call of Downgrade on its holder counts as one that
// shares the key.
func exclusion(run *history.Run, rules Rules) (found []Finding) {
	for _, key := range run.Keys() {
		for _, p := range overlaps(run.Granted(key)) {
			overlap := time.Duration(min(p.first.End(), p.second.End()) - p.second.Granted)
			f := Finding{Check: "exclusion", Key: key, At: p.second.Granted,
				Text: fmt.Sprintf("%s and %s were both valid for %v", described(p.first),
					described(p.second), overlap)}
			f.Excuse, f.Because = excuse(run, rules, p.first, p.second)
			found = append(found, f)
		}
	}
	return found
}

// described names an acquisition, what it was for, and its token.
func described(a *history.Acquisition) string {
	role := ""
	switch {
	case a.Shared:
		role = ", shared"
	case a.Lower != 0:
		role = ", downgraded"
	}
	return fmt.Sprintf("%v (token %d%s)", a, a.Token, role)
}

// pair is two acquisitions of a key that were valid at one time, and not both shared it.
type pair struct{ first, second *history.Acquisition }

// overlaps returns all pairs among those granted, which are in the order of their grants.
func overlaps(granted []*history.Acquisition) (pairs []pair) {
	var valid []*history.Acquisition
	for _, a := range granted {
		valid = slices.DeleteFunc(valid, func(other *history.Acquisition) bool {
			return other.End() <= a.Granted
		})
		for _, other := range valid {
			if rivals(other, a) {
				pairs = append(pairs, pair{other, a})
			}
		}
		valid = append(valid, a)
	}
	return pairs
}

// rivals reports whether the second acquisition must not be granted while the first one is valid,
// because not both share the key by then.
func rivals(first, second *history.Acquisition) bool {
	return !second.Shared || second.Granted < first.Alone()
}

// tokens: an acquisition that began after another one was complete has the larger token, and no two
// have the same, unless both share the key: those do not write, and all that rest on one lease have
// its token. Lost counters excuse nothing: on one machine the clocks of clients agree, and take
// their place. Only a turn that was handed over in memory may have an older token, if a broken
// assumption explains that another process had the key meanwhile.
func tokens(run *history.Run, rules Rules) (found []Finding) {
	for _, key := range run.Keys() {
		granted := run.Granted(key)
		found = append(found, sameTokens(key, granted)...)
		found = append(found, fallingTokens(run, rules, key, granted)...)
	}
	return found
}

// sameTokens finds tokens of a key that two acquisitions have although they must not.
func sameTokens(key string, granted []*history.Acquisition) (found []Finding) {
	owners := make(map[uint64]*history.Acquisition)
	for _, a := range granted {
		other := owners[a.Token]
		if other != nil && !(other.Shared && a.Shared) {
			found = append(found, Finding{Check: "tokens", Key: key, At: a.Granted,
				Text: fmt.Sprintf("%v and %v both have token %d", other, a, a.Token)})
		}
		if other == nil || !a.Shared {
			owners[a.Token] = a // one that has it alone, if any has
		}
	}
	return found
}

// fallingTokens finds tokens of a key that are smaller than one before.
func fallingTokens(run *history.Run, rules Rules, key string,
	granted []*history.Acquisition) (found []Finding) {
	asked := slices.Clone(granted)
	slices.SortFunc(asked, func(a, b *history.Acquisition) int {
		return cmp.Compare(a.Asked, b.Asked)
	})
	var largest, alone *history.Acquisition // of those complete, and of those that did not share
	complete := 0
	for _, a := range asked {
		for ; complete < len(granted) && granted[complete].Granted < a.Asked; complete++ {
			c := granted[complete]
			if largest == nil || c.Token > largest.Token {
				largest = c
			}
			if !c.Shared && (alone == nil || c.Token > alone.Token) {
				alone = c
			}
		}
		before := largest
		if a.Shared {
			before = alone
		}
		if before != nil && before.Token > a.Token {
			f := Finding{Check: "tokens", Key: key, At: a.Granted,
				Text: fmt.Sprintf("%v has token %d, %v before it had %d", a, a.Token, before,
					before.Token)}
			if reserved(run, a, before.Granted) {
				f.Excuse, f.Because = excuse(run, rules, a, before)
			}
			found = append(found, f)
		}
	}
	return found
}

// reserved reports whether the token of an acquisition was drawn before that moment, by a call that
// drew tokens for turns to come.
func reserved(run *history.Run, a *history.Acquisition, moment int64) bool {
	return slices.ContainsFunc(noticed(run.CallsOf(a.Client, a.Key)), func(c history.Record) bool {
		return drew(c) && c.Outcome == held && c.Token <= a.Token && a.Token <= last(c) &&
			c.At < moment
	})
}

// register: the guarded store answers, because it is in the laboratory's own process. It accepts
// what a rightful holder writes, and lets a holder read that shares the key. (The store itself
// makes sure that what it accepts never goes back, and reports what it should not have seen.) If it
// refuses, an acquisition with a larger token must have been granted the lock before, to write.
// Only what explains that grant is an excuse. If there is no such acquisition, the token or the
// store is wrong. The value does not change while somebody reads it.
func register(run *history.Run, rules Rules) (found []Finding) {
	for _, key := range run.Keys() {
		granted := run.Granted(key)
		for _, a := range granted {
			found = append(found, unstable(run, rules, a, granted)...)
			for _, w := range slices.Concat(a.Writes, a.Looks) {
				if w.Outcome == history.Unanswered {
					found = append(found, Finding{Check: "register", Key: key, At: w.At,
						Text: fmt.Sprintf("a %s of %v was not answered", w.Kind, a)})
				}
				if w.Outcome != history.Refused || w.Until >= a.End() {
					continue
				}
				f := Finding{Check: "register", Key: key, At: w.At,
					Text: fmt.Sprintf(
						"a %s of %v with token %d was refused while its lock was valid", w.Kind, a,
						a.Token)}
				for _, other := range granted {
					if f.Excuse == "" && !other.Shared && other.Granted < w.Until &&
						overtook(run, other, a) {
						f.Excuse, f.Because = excuse(run, rules, a, other)
					}
				}
				found = append(found, f)
			}
		}
	}
	return found
}

// overtook reports whether the first acquisition had a larger token, and had a lease while the
// other one had its own, or waited.
func overtook(run *history.Run, a, b *history.Acquisition) bool {
	return a.Token > b.Token && a.End() > leased(run, b)
}

// loss: a holder that lost its lock, and whose process ran, was told before the next acquisition
// was granted, unless that shares the key with it.
func loss(run *history.Run, rules Rules) (found []Finding) {
	for _, key := range run.Keys() {
		granted := run.Granted(key)
		for i, a := range granted {
			j := slices.IndexFunc(granted[i+1:], func(other *history.Acquisition) bool {
				return !other.Shared || !a.Shared && (a.Lower == 0 || other.Granted < a.Lower)
			})
			if j < 0 {
				continue
			}
			next := granted[i+1+j]
			told, how := a.Told, "was told of its loss"
			if told == 0 && a.Stopped() > a.Until {
				told, how = a.Stopped(), "was never told of its loss, and stopped"
			}
			if told == 0 || told <= next.Granted || ranBadly(run, a, told, next.Granted) {
				continue
			}
			f := Finding{Check: "loss", Key: key, At: told,
				Text: fmt.Sprintf("%v %s %v after %v had the lock, and %v after its deadline",
					a, how, time.Duration(told-next.Granted), next, time.Duration(told-a.Until))}
			f.Excuse, f.Because = excuse(run, rules, a, next)
			found = append(found, f)
		}
	}
	return found
}

// ranBadly reports whether the process stood still at times between the deadline and the moment, as
// far as it noticed, and whether that explains why it was told so late. It measures stalls only as
// finely as its ticks. So a stall and then a goroutine that is late may both be without a record.
func ranBadly(run *history.Run, a *history.Acquisition, told, moment int64) bool {
	const tick, much = int64(20 * time.Millisecond), int64(100 * time.Millisecond)
	if told-min(a.Until, moment) <= int64(2*history.Unnoticed) {
		return true
	}
	from := min(a.Until, moment) - tick
	stalled, late := false, told-from
	for _, s := range run.Stalls {
		if s.Client == a.Client && s.At <= told+tick && from <= s.Until {
			stalled = true
			late -= min(told, s.Until) - max(from, s.At)
		}
	}
	return stalled && late <= much
}

// leaks: when a client closes everything, that succeeds, unless the machine is too busy just then,
// and no goroutine is left.
func leaks(run *history.Run, _ Rules) (found []Finding) {
	for _, d := range run.Dones {
		f := Finding{Check: "leaks", At: d.At}
		closing := span{d.At - int64(Slack), d.At}
		switch {
		case d.Count > 0:
			f.Text = fmt.Sprintf("%s has %d goroutines left: %s", d.Client, d.Count, d.Err)
		case d.Err != "" && length(quiet(closing, starved(run, d.Client))) == int64(Slack):
			f.Text = fmt.Sprintf("%s could not close everything: %s", d.Client, d.Err)
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}
