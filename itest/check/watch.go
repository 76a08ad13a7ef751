package check

import (
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// Watch says how much time and how many tries a run had in which a lost wake-up, or a key that
// cannot be had, shows. A busy machine leaves few of them, and then the checks find nothing,
// whatever is wrong.
type Watch struct {
	// the longest time in which nothing was broken while clients were at work
	Unbroken time.Duration
	// the most of such a time that is left without those parts of it in which the machine was too
	// busy for the laboratory to run as it should have
	Undisturbed time.Duration
	Waits       int // waits for a key, each undisturbed for long enough to judge it
	Probes      int // acquisitions to show that a key can be had
	Granted     int // of them, granted
}

// Watched returns the Watch of a run, or of the part of a run up to the moment.
func Watched(run *history.Run, until int64) (w Watch) {
	rules := RulesOf(run)
	disturbances := make(map[string][]span)
	disturbances[""] = disturbed(run, rules, "")
	for _, a := range run.Acquisitions {
		if lock := a.Lock(); disturbances[lock] == nil {
			disturbances[lock] = disturbed(run, rules, lock)
		}
	}
	stalls := starved(run, history.Laboratory)
	for _, s := range quiet(span{run.Mark(history.Tormented), until}, disturbances[""]) {
		w.Unbroken = max(w.Unbroken, time.Duration(s.to-s.from))
		w.Undisturbed = max(w.Undisturbed, time.Duration(length(quiet(s, stalls))))
	}
	for _, a := range run.Acquisitions {
		switch {
		case IsProbe(a):
			w.Probes++
			if a.Granted != 0 {
				w.Granted++
			}
		case a.Set == 0 && waited(a) > longestIdle:
			if _, long := lengthy(run, a, disturbances[a.Lock()]); long {
				w.Waits++
			}
		}
	}
	return w
}
