package check

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// overdue finds the calls of Acquire and Release that did not return when their context ended,
// though their process ran.
func overdue(run *history.Run) (found []Finding) {
	late := func(a *history.Acquisition, call string, until, returned int64) {
		if returned == 0 {
			returned = run.End
		}
		s := span{until, returned}
		if until == 0 || s.to-s.from <= int64(Slack) ||
			length(quiet(s, starved(run, a.Client))) <= int64(Slack) {
			return
		}
		found = append(found, Finding{Check: "liveness", Key: a.Key, At: until,
			Text: fmt.Sprintf("%s of %v had not returned %v after its context ended", call, a,
				time.Duration(s.to-s.from))})
	}
	for _, a := range run.Acquisitions {
		if returned := max(a.Granted, a.Refused); returned != 0 || !a.Died() {
			late(a, "Acquire", a.AskedUntil, returned)
		}
		if a.Released != 0 || !a.Died() {
			late(a, "Release", a.ReleaseUntil, a.Released)
		}
	}
	return found
}

// unwell finds the clients that were granted nothing in the end, when a lost lease and a quarantine
// were over, though the machine let them run for long enough at a stretch: they have not recovered
// from the faults. On a machine that stalls again and again, a request to several servers may fail
// each time, however much time there was in between. Clients that are stopped until the end do not
// count.
func unwell(run *history.Run, rules Rules) (found []Finding) {
	calm := span{run.Mark(history.Calm) + int64(rules.wake()), run.Mark(history.Probed)}
	if run.Mark(history.Calm) == 0 || rules.Stale > 0 {
		return nil
	}
	granted := make(map[string]bool)
	for _, a := range run.Acquisitions {
		if calm.from < a.Granted && a.Granted < calm.to {
			granted[slot(a.Client)] = true
		}
	}
	for i := range run.Setup.Clients {
		client := fmt.Sprintf("c%d", i+1)
		var stalls []span
		for _, s := range run.Stalls {
			if s.Client == history.Laboratory || slot(s.Client) == client {
				stalls = append(stalls, span{s.At, s.Until})
			}
		}
		if had := longest(quiet(calm, stalls)); !granted[client] && had > longestIdle {
			found = append(found, Finding{Check: "liveness", At: calm.from,
				Text: fmt.Sprintf("%s was granted nothing, also in %v at a stretch, though nothing is broken any more",
					client, time.Duration(had))})
		}
	}
	return found
}
