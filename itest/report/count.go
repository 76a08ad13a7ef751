//go:build unix

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/lab"
)

// Figures are what can be counted.
type Figures struct {
	Asked    int            // calls of Acquire
	Granted  int            // of them, those that gave a lock; without probes
	Permits  int            // of them, permits of semaphores
	Released int            // releases that the backend confirmed
	Lost     int            // locks that ended without their holder's doing
	Renewed  int            // deadlines seen to move
	Writes   int            // to the guarded store
	Refused  int            // of them, refused by the guards
	Undone   int            // writes that would have been undone without a guard
	Watch    check.Watch    // how much time there was to show that locks can be had
	Faults   map[string]int // by kind
	Absent   []string       // kinds of faults that were planned and did not come up
	Pauses   int            // stops and stalls of clients for more than 100 ms
	Outage   time.Duration  // the longest time in which no key was granted though somebody waited
	Starved  time.Duration  // the laboratory itself did not run: then nothing counts as late
	Excused  int            // findings with an excuse
	Violated int            // findings without one
	// of them, those that only say that nothing was shown: a search or a probe was given up, or
	// the machine was too busy
	Open   int
	Errors map[string]int  // of calls of Acquire, by kind
	Guards []check.Guarded // by kind of store
}

// Count counts what happened in a run.
func Count(r *lab.Result, found []check.Finding) Figures {
	f := Figures{Faults: make(map[string]int), Errors: make(map[string]int)}
	var grants []int64
	for _, a := range r.History.Acquisitions {
		f.Asked++
		if a.Granted != 0 {
			if !check.IsProbe(a) {
				f.Granted++
				if a.Semaphore != "" {
					f.Permits++
				}
			}
			grants = append(grants, a.Granted)
			if a.Lost() {
				f.Lost++
			}
		}
		if a.Err != "" {
			f.Errors[a.Err]++
		}
		if a.Released != 0 && a.Unclear == "" {
			f.Released++
		}
		for _, w := range a.Writes {
			f.Writes++
			if w.Outcome == history.Refused {
				f.Refused++
			}
		}
	}
	f.Absent = check.Absent(r.History)
	f.Watch = check.Watched(r.History, r.History.Mark(history.Probed))
	f.Undone = r.History.Undone
	f.Guards = check.Guards(r.History)
	for _, g := range f.Guards {
		f.Undone += g.Lost
	}
	slices.Sort(grants)
	for i := 1; i < len(grants); i++ {
		f.Outage = max(f.Outage, time.Duration(grants[i]-grants[i-1]))
	}
	f.countDisturbances(r.History)
	f.countFindings(found)
	return f
}

// countDisturbances counts faults, and when clients or the laboratory did not run.
func (f *Figures) countDisturbances(run *history.Run) {
	for _, fault := range run.Faults {
		f.Faults[kind(fault.Name)]++
		if strings.HasPrefix(fault.Name, "pause") {
			f.Pauses++
		}
	}
	for _, s := range run.Stalls {
		if s.Client == history.Laboratory {
			f.Starved += time.Duration(s.Until - s.At)
			continue
		}
		if s.Until-s.At > int64(100*time.Millisecond) {
			f.Pauses++
		}
	}
}

func (f *Figures) countFindings(found []check.Finding) {
	for _, finding := range found {
		if finding.Excuse != "" {
			f.Excused++
		} else {
			f.Violated++
		}
		if finding.Open {
			f.Open++
		}
	}
}

// kind is a fault's name without its particulars.
func kind(name string) string {
	switch {
	case strings.HasPrefix(name, "clock set forward"):
		return "clock set forward"
	case strings.HasPrefix(name, "clock -"):
		return "clock behind for a while"
	case strings.HasPrefix(name, "clock ") && !strings.Contains(name, ","):
		return "clock ahead for a while"
	}
	name, _, _ = strings.Cut(name, ",")
	return name
}

// String is one line.
func (f Figures) String() string {
	return fmt.Sprintf(
		"%d asked, %d granted, %d of them permits, and %d to %d probes, %d released, %d lost; %d writes, %d refused, %d would have been undone; longest outage %v; machine too busy for %v; undisturbed for %v, %d waits judged; errors %s; faults %s; did not come up: %s; %d excused, %d violations, %d times nothing was shown",
		f.Asked, f.Granted, f.Permits, f.Watch.Granted, f.Watch.Probes, f.Released, f.Lost,
		f.Writes, f.Refused, f.Undone, f.Outage.Round(time.Millisecond),
		f.Starved.Round(time.Millisecond),
		f.Watch.Undisturbed.Round(time.Millisecond), f.Watch.Waits,
		tally(f.Errors), tally(f.Faults),
		cmp.Or(strings.Join(f.Absent, ", "), "none"), f.Excused, f.Violated, f.Open)
}

// tally lists counts, the largest first.
func tally(counts map[string]int) string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}
