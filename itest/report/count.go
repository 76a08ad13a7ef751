// Package report tells people what a run of the laboratory showed: figures, findings, and a picture.
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
	Granted  int            // of them, that gave a lock
	Released int            // releases that the backend confirmed
	Lost     int            // locks that ended without their holder's doing
	Renewed  int            // deadlines seen to move
	Writes   int            // to the guarded store
	Refused  int            // of them, by the guards
	Undone   int            // writes that would have been undone without a guard
	Faults   map[string]int // by kind
	Pauses   int            // of clients, stops and stalls of more than 100 ms
	Outage   time.Duration  // the longest time in which no key was granted though somebody waited
	Excused  int            // findings with an excuse
	Violated int            // findings without one
	Errors   map[string]int // of calls of Acquire, by kind
}

// Count counts.
func Count(r *lab.Result, found []check.Finding) Figures {
	f := Figures{Faults: make(map[string]int), Errors: make(map[string]int)}
	var grants []int64
	for _, a := range r.History.Acquisitions {
		f.Asked++
		if a.Granted != 0 {
			f.Granted++
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
	f.Undone = r.Counts.Lost
	for _, fault := range r.History.Faults {
		f.Faults[kind(fault.Name)]++
		if fault.Name == "pause" {
			f.Pauses++
		}
	}
	for _, s := range r.History.Stalls {
		if s.Until-s.At > int64(100*time.Millisecond) {
			f.Pauses++
		}
	}
	slices.Sort(grants)
	for i := 1; i < len(grants); i++ {
		f.Outage = max(f.Outage, time.Duration(grants[i]-grants[i-1]))
	}
	for _, finding := range found {
		if finding.Excuse != "" {
			f.Excused++
		} else {
			f.Violated++
		}
	}
	return f
}

// kind is a fault's name without its particulars.
func kind(name string) string {
	switch {
	case strings.HasPrefix(name, "clock set forward"):
		return "clock set forward"
	case strings.HasPrefix(name, "clock -"):
		return "clock behind for a while"
	case strings.HasPrefix(name, "clock "):
		return "clock ahead for a while"
	}
	name, _, _ = strings.Cut(name, ",")
	return name
}

// String is one line.
func (f Figures) String() string {
	return fmt.Sprintf("%d asked, %d granted, %d released, %d lost; %d writes, %d refused, %d would have been undone; longest outage %v; errors %s; faults %s; %d excused, %d violations",
		f.Asked, f.Granted, f.Released, f.Lost, f.Writes, f.Refused, f.Undone, f.Outage.Round(time.Millisecond), tally(f.Errors), tally(f.Faults), f.Excused, f.Violated)
}

// tally lists counts, the largest first.
func tally(counts map[string]int) string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}
