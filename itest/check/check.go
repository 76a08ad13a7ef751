// Package check tells from a history whether promises were kept.
//
// Each check is a function from a history to the findings that it makes. A finding is excused if a fault broke an assumption that the promise is
// documented to rest on while the acquisitions concerned were under way; then it is a limit, shown at work, and is reported as such.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// Finding is a promise that was not kept.
type Finding struct {
	Check  string // its name
	Key    string // of the lock; empty if it concerns none
	Text   string // what was seen
	At     int64  // when
	Excuse string // the broken assumption; empty for a violation
}

// String describes the finding.
func (f Finding) String() string {
	s := fmt.Sprintf("%s: %s: %s", f.Check, f.Key, f.Text)
	if f.Excuse != "" {
		s += " (" + f.Excuse + ")"
	}
	return s
}

// Rules are what the checks have to know about the run.
type Rules struct {
	TTL   time.Duration // of all locks
	Guard time.Duration // the restart quarantine
	Calm  int64         // when the faults were over; 0 if there were none
}

// Checks are all there are, by name.
var Checks = map[string]func(*history.Run, Rules) []Finding{
	"exclusion":       exclusion,
	"tokens":          tokens,
	"register":        register,
	"linearizability": linearizability,
	"loss":            loss,
	"idle":            idle,
	"liveness":        liveness,
	"leaks":           leaks,
}

// All makes all checks, and gives what they and the laboratory itself found, in the order of time.
func All(run *history.Run, rules Rules) []Finding {
	var found []Finding
	for _, check := range Checks {
		found = append(found, check(run, rules)...)
	}
	for _, v := range run.Violations {
		found = append(found, Finding{Check: v.Name, Text: v.Err, At: v.At})
	}
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Text, b.Text))
	})
	return found
}

// Violations are the findings without an excuse.
func Violations(found []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f Finding) bool { return f.Excuse != "" })
}

// excuse gives the assumption that was broken between two moments, if one was.
func excuse(run *history.Run, from, to int64) string {
	for _, f := range run.Faults {
		if f.Breaks != "" && f.At <= to && from <= f.Until {
			return f.Breaks
		}
	}
	return ""
}

// exclusion: at any moment at most one acquisition of a key is valid. An acquisition is valid from when Acquire returned until its
// holder released it, was told of its loss, or its last deadline passed.
func exclusion(run *history.Run, _ Rules) (found []Finding) {
	for _, key := range run.Keys() {
		var longest *history.Acquisition // of those before, the one that ended last
		for _, a := range run.Granted(key) {
			if longest != nil && longest.End() > a.Granted {
				overlap := time.Duration(min(longest.End(), a.End()) - a.Granted)
				found = append(found, Finding{
					Check: "exclusion", Key: key, At: a.Granted, Excuse: excuse(run, longest.Asked, a.Granted),
					Text: fmt.Sprintf("%v (token %d) and %v (token %d) were both valid for %v", longest, longest.Token, a, a.Token, overlap),
				})
			}
			if longest == nil || a.End() > longest.End() {
				longest = a
			}
		}
	}
	return found
}

// tokens: they are unique, and an acquisition that began after another one was complete has the larger one. Nothing excuses it: on one
// machine the clocks of clients agree, and where counters were lost they stand in.
func tokens(run *history.Run, _ Rules) (found []Finding) {
	for _, key := range run.Keys() {
		granted := run.Granted(key)
		owners := make(map[uint64]*history.Acquisition)
		for _, a := range granted {
			if other := owners[a.Token]; other != nil {
				found = append(found, Finding{Check: "tokens", Key: key, At: a.Granted, Text: fmt.Sprintf("%v and %v both have token %d", other, a, a.Token)})
			}
			owners[a.Token] = a
		}
		asked := slices.Clone(granted)
		slices.SortFunc(asked, func(a, b *history.Acquisition) int { return cmp.Compare(a.Asked, b.Asked) })
		var largest *history.Acquisition // of those complete
		complete := 0
		for _, a := range asked {
			for ; complete < len(granted) && granted[complete].Granted < a.Asked; complete++ {
				if largest == nil || granted[complete].Token > largest.Token {
					largest = granted[complete]
				}
			}
			if largest != nil && largest.Token > a.Token {
				found = append(found, Finding{Check: "tokens", Key: key, At: a.Granted, Text: fmt.Sprintf("%v has token %d, %v before it had %d", a, a.Token, largest, largest.Token)})
			}
		}
	}
	return found
}

// register: the guarded store takes what a rightful holder writes. (What it takes never goes back: the register itself sees to that,
// and reports what it should not have seen.)
func register(run *history.Run, _ Rules) (found []Finding) {
	for _, key := range run.Keys() {
		granted := run.Granted(key)
		for i, a := range granted {
			for _, w := range a.Writes {
				// Whoever is granted the lock while the write is under way may overtake it.
				overtaken := i+1 < len(granted) && granted[i+1].Asked < w.Until && granted[i+1].Granted < w.Until
				if w.Outcome == history.Refused && w.Until < a.End() && !overtaken {
					found = append(found, Finding{
						Check: "register", Key: key, At: w.At, Excuse: excuse(run, a.Asked, w.Until),
						Text: fmt.Sprintf("a write of %v with token %d was refused while its lock was valid", a, a.Token),
					})
				}
			}
		}
	}
	return found
}

// loss: whoever lost a lock was told before the next acquisition was granted, if the process ran.
func loss(run *history.Run, _ Rules) (found []Finding) {
	for _, key := range run.Keys() {
		granted := run.Granted(key)
		for i, a := range granted[:max(0, len(granted)-1)] {
			next := granted[i+1]
			if a.Told == 0 || a.Told <= next.Granted || ranBadly(run, a, next.Granted) {
				continue
			}
			found = append(found, Finding{
				Check: "loss", Key: key, At: a.Told, Excuse: excuse(run, a.Asked, next.Granted),
				Text: fmt.Sprintf("%v was told of its loss %v after %v had the lock, and %v after its deadline", a,
					time.Duration(a.Told-next.Granted), next, time.Duration(a.Told-a.Until)),
			})
		}
	}
	return found
}

// ranBadly reports whether the process did not run all the time from the deadline to the moment, as far as it noticed. Its own clock of
// stalls is as coarse as its ticks.
func ranBadly(run *history.Run, a *history.Acquisition, moment int64) bool {
	const tick = int64(20 * time.Millisecond)
	for _, s := range run.Stalls {
		if s.Client == a.Client && s.At <= max(a.Told, moment)+tick && min(a.Until, moment)-tick <= s.Until {
			return true
		}
	}
	return false
}

// leaks: a client that closed everything has no goroutine left.
func leaks(run *history.Run, _ Rules) (found []Finding) {
	for _, d := range run.Dones {
		if d.Count > 0 {
			found = append(found, Finding{Check: "leaks", At: d.At, Text: fmt.Sprintf("%s has %d goroutines left: %s", d.Client, d.Count, d.Err)})
		}
	}
	return found
}
