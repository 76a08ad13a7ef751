package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// Slack is what a busy machine may take for what should take no time.
const Slack = 2 * time.Second

// liveness: when the faults are over every key can be had, by a process of its own, once a lost lease and a quarantine are over.
func liveness(run *history.Run, rules Rules) (found []Finding) {
	for _, a := range run.Acquisitions {
		if !strings.HasPrefix(a.Client, "probe") {
			continue
		}
		bound := int64(rules.TTL + rules.Guard + Slack)
		switch {
		case a.Granted == 0:
			found = append(found, Finding{Check: "liveness", Key: a.Key, At: a.Asked, Text: "it can not be acquired though nothing is broken any more: " + a.Err})
		case a.Granted-a.Asked > bound:
			found = append(found, Finding{Check: "liveness", Key: a.Key, At: a.Asked,
				Text: fmt.Sprintf("it took %v to acquire it though nothing is broken any more", time.Duration(a.Granted-a.Asked))})
		}
	}
	return found
}

// idle: while nothing is broken, a key for which somebody waits is not free for long. A lost wake-up may cost a second, not the patience of
// whoever waits.
func idle(run *history.Run, rules Rules) (found []Finding) {
	bound := int64(time.Second + Slack)
	for _, key := range run.Keys() {
		granted := run.Granted(key)
		// Between two grants, the key is free from the end of the first one on.
		for i := range granted {
			free := granted[i].End()
			if granted[i].Released == 0 || granted[i].Unclear != "" {
				free = max(free, granted[i].Until) // its lease has to run out
			}
			next := run.End
			if i+1 < len(granted) {
				next = granted[i+1].Granted
			}
			if next-free <= bound {
				continue
			}
			for _, a := range run.Acquisitions {
				if a.Key != key {
					continue
				}
				from, to := max(free, a.Asked), min(next, max(a.Granted, a.Refused))
				if from, to = quietest(run, rules, from, to); to-from > bound {
					found = append(found, Finding{Check: "idle", Key: key, At: from,
						Text: fmt.Sprintf("%v waited for %v while nobody held the key and nothing was broken", a, time.Duration(to-from))})
					break
				}
			}
		}
	}
	return found
}

// quietest gives the longest part of a span in which there is no fault, nor the aftermath of one: what a client that was cut off holds runs out, a
// quarantine ends, and connections are made again.
func quietest(run *history.Run, rules Rules, from, to int64) (int64, int64) {
	aftermath := int64(rules.TTL + rules.Guard + Slack)
	bestFrom, bestTo := from, from
	for _, f := range run.Faults {
		if f.Until+aftermath < from || f.At > to {
			continue
		}
		if f.At-from > bestTo-bestFrom {
			bestFrom, bestTo = from, f.At
		}
		from = max(from, f.Until+aftermath)
	}
	if to-from > bestTo-bestFrom {
		bestFrom, bestTo = from, to
	}
	return bestFrom, bestTo
}
