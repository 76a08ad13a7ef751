package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/itest/history"
)

// Guarded is what was counted at one guarded store.
type Guarded struct {
	Store    string // its kind
	Writes   int    // writes tried through the guard
	Stale    int    // of them, those after a larger token was accepted
	Accepted int    // of those, accepted: there should be none; the others were refused
	Lost     int    // updates of the twin that are not in it at the end
}

// Guards counts what was tried at each guarded store, in the order of the stores' names.
func Guards(run *history.Run) (counts []Guarded) {
	byStore := make(map[string]*Guarded)
	for _, f := range run.Finals {
		g := byStore[f.Name]
		if g == nil {
			g = &Guarded{Store: f.Name}
			byStore[f.Name] = g
		}
		g.Lost -= int(f.Twin)
	}
	for place, tries := range triesOf(run) {
		g := byStore[place.store]
		if g == nil {
			g = &Guarded{Store: place.store}
			byStore[place.store] = g
		}
		before := largestOf(tries, done)
		for _, t := range tries {
			if t.Kind != history.Write {
				continue
			}
			g.Writes++
			if t.Twin > 0 {
				g.Lost++
			}
			// What was not answered may have been accepted or refused.
			if t.Outcome != history.Failed && before.until(t.At) > t.token {
				g.Stale++
				if t.Outcome == history.Accepted {
					g.Accepted++
				}
			}
		}
	}
	for _, g := range byStore {
		counts = append(counts, *g)
	}
	slices.SortFunc(counts, func(a, b Guarded) int { return cmp.Compare(a.Store, b.Store) })
	return counts
}

// guards: a guard refuses writes with a smaller token than one that was accepted before, and no
// others. What is accepted is written, and nothing else is. So no update through a guard is lost,
// and a store's token never goes back. On each store as many late writes have to be tried as were
// planned. Otherwise nothing was shown.
func guards(run *history.Run, rules Rules) (found []Finding) {
	all := triesOf(run)
	left := make(map[place][]uint64)
	for place, tries := range all {
		found = append(found, place.judge(tries)...)
		wrong, values := place.follow(tries)
		found, left[place] = append(found, wrong...), values
	}
	for _, f := range run.Finals {
		p := place{f.Name, f.Key}
		values, written := left[p]
		if !written {
			values = initial
		}
		if !slices.Contains(values, f.Value) {
			found = append(found,
				p.finding(f.At, "it ends with %d; want one of %d", f.Value, values))
		}
		delete(left, p)
	}
	for place := range left {
		found = append(found, place.finding(run.End, "nobody has looked what it ends with"))
	}
	counts := Guards(run)
	for _, g := range counts {
		if g.Stale < rules.Stale {
			found = append(found, place{store: g.Store}.finding(run.End,
				"only %d writes came too late; %d were to be tried", g.Stale, rules.Stale))
		}
	}
	if rules.Stale > 0 && len(counts) == 0 {
		found = append(found, place{}.finding(run.End, "no store was written to"))
	}
	return found
}

// slowStore is why a guard may have given no answer.
const slowStore = "a store answers in time"

// initial is the value with which each counter begins.
var initial = []uint64{0}

// place is a counter in one store.
type place struct{ store, key string }

func (p place) finding(at int64, format string, args ...any) Finding {
	return Finding{Check: "guards", Store: p.store, Key: p.key, At: at,
		Text: fmt.Sprintf(format, args...)}
}

// try is a request to a guard, by the holder of token.
type try struct {
	history.Record
	by    *history.Acquisition
	token uint64
}

// triesOf returns all of them.
func triesOf(run *history.Run) map[place][]try {
	all := make(map[place][]try)
	for _, a := range run.Acquisitions {
		for _, w := range a.Writes {
			if w.Name != "" {
				p := place{w.Name, a.Key}
				all[p] = append(all[p], try{w, a, a.Token})
			}
		}
	}
	return all
}

// largest says which tokens were the largest so far, in the order of time.
type largest []moment

// moment is a token, with the time from which on it counts.
type moment struct {
	at    int64
	token uint64
}

// done returns when a try is known to have been accepted, if it is known.
func done(t try) (at int64, ok bool) { return t.Until, t.Outcome == history.Accepted }

// begun returns from when on a try may have been accepted, if it may.
func begun(t try) (at int64, ok bool) { return t.At, t.Outcome != history.Refused }

// largestOf returns the largest tokens of the tries that count, with their times.
func largestOf(tries []try, counts func(try) (at int64, ok bool)) (l largest) {
	var all largest
	for _, t := range tries {
		if at, ok := counts(t); ok {
			all = append(all, moment{at, t.token})
		}
	}
	slices.SortFunc(all, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	for _, m := range all {
		if len(l) == 0 || m.token > l[len(l)-1].token {
			l = append(l, m)
		}
	}
	return l
}

// until returns the largest token before a moment; 0 if there is none.
func (l largest) until(at int64) uint64 {
	i, _ := slices.BinarySearchFunc(l, at, func(m moment, at int64) int {
		return cmp.Compare(m.at, at)
	})
	if i == 0 {
		return 0
	}
	return l[i-1].token
}

// judge says what is wrong with the answers of a guard.
func (p place) judge(tries []try) (found []Finding) {
	before, perhaps := largestOf(tries, done), largestOf(tries, begun)
	for _, t := range tries {
		newest, largest := before.until(t.At), perhaps.until(t.Until)
		switch {
		case t.Outcome == history.Failed:
			f := p.finding(t.At, "%v was answered with no answer of a guard: %s", t.by, t.Err)
			if t.Until-t.At >= int64(history.Slow) {
				f.Excuse = slowStore
			}
			found = append(found, f)
		case t.Outcome == history.Accepted && newest > t.token:
			found = append(found, p.finding(t.At, "%v was let in with token %d after %d", t.by,
				t.token, newest))
		case t.Outcome == history.Refused && largest <= t.token:
			found = append(found, p.finding(t.At,
				"%v was refused with token %d, and nobody had come with a larger one", t.by,
				t.token))
		case t.Outcome == history.Refused && t.Newest != 0 &&
			(t.Newest < max(newest, t.token+1) || t.Newest > largest):
			found = append(found, p.finding(t.At,
				"%v was refused with token %d as %d was newer, after %d was accepted; %d is the largest",
				t.by, t.token, t.Newest, newest, largest))
		}
	}
	return found
}

// follow says which reads were not of what the guard had accepted, and what may be there in the
// end. Accepted writes are in the order of their tokens, and no two write the same value.
func (p place) follow(tries []try) (found []Finding, values []uint64) {
	values = initial
	writers := make(map[uint64]*history.Acquisition)
	for _, t := range slices.SortedFunc(slices.Values(tries), func(a, b try) int {
		return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.At, b.At))
	}) {
		if t.Kind == history.Write {
			if other := writers[t.Value]; other != nil {
				found = append(found, p.finding(t.At, "nothing tells the write of %v from that of %v",
					t.by, other))
			}
			writers[t.Value] = t.by
		}
		switch {
		case t.Kind == history.Write && t.Outcome == history.Accepted:
			values = []uint64{t.Value}
		case t.Kind == history.Write && t.Outcome == history.Failed:
			values = append(slices.Clone(values), t.Value)
		case t.Kind == history.Enter && t.Outcome == history.Accepted:
			if !slices.Contains(values, t.Value) {
				found = append(found, p.finding(t.At, "%v has read %d; want one of %d", t.by,
					t.Value, values))
			}
			values = []uint64{t.Value}
		}
	}
	return found, values
}
