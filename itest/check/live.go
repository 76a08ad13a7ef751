package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// Slack is how long a busy machine may take for what should take no time.
const Slack = 2 * time.Second

// liveness: when the faults are over, and a lost lease and a quarantine, too, a separate process
// can acquire every key. A key that nobody has tried then is a violation, too, and so is a run
// without a try: nothing was shown. Time in which the machine was too busy to run the probe does
// not count. A probe that gave up without enough time has shown nothing. Besides, a call returns
// when its context ends, whatever is broken, and clients recover from the faults.
func liveness(run *history.Run, rules Rules) (found []Finding) {
	return slices.Concat(overdue(run), unwell(run, rules), probes(run, rules))
}

// probes finds what is wrong with the keys when the faults are over.
func probes(run *history.Run, rules Rules) (found []Finding) {
	tried := make(map[string]bool)
	for _, a := range run.Acquisitions {
		if !IsProbe(a) {
			continue
		}
		tried[a.Key] = true
		bound := int64(rules.wake() + Slack)
		took := length(quiet(span{a.Asked, max(a.Granted, a.Refused)}, starved(run, a.Client)))
		switch {
		case a.Granted == 0 && a.Refused != 0 && took <= bound:
			found = append(found, Finding{Check: "liveness", Key: a.Key, At: a.Asked,
				Text: "the machine was too busy to show that it can be acquired: " + a.Err,
				Open: true})
		case a.Granted == 0:
			found = append(found, Finding{Check: "liveness", Key: a.Key, At: a.Asked,
				Text: "it can not be acquired though nothing is broken any more: " + a.Err})
		case took > bound:
			found = append(found, Finding{Check: "liveness", Key: a.Key, At: a.Asked,
				Text: fmt.Sprintf("it took %v to acquire it though nothing is broken any more",
					time.Duration(a.Granted-a.Asked))})
		}
	}
	if len(tried) == 0 {
		return append(found, Finding{Check: "liveness", At: run.End, Text: "there were no probes"})
	}
	for key := range byKey(run) { // of permits, see permits
		if !tried[key] {
			found = append(found, Finding{Check: "liveness", Key: key, At: run.End,
				Text: "nobody has tried to acquire it when the faults were over"})
		}
	}
	return found
}

// IsProbe reports whether the acquisition was made to show that the key can be had.
func IsProbe(a *history.Acquisition) bool { return strings.HasPrefix(a.Client, "probe") }

// length is the total length of spans that do not overlap.
func length(spans []span) (total int64) {
	for _, s := range spans {
		total += s.to - s.from
	}
	return total
}

// longest is the length of the longest span.
func longest(spans []span) (length int64) {
	for _, s := range spans {
		length = max(length, s.to-s.from)
	}
	return length
}

// span is a part of time.
type span struct{ from, to int64 }

// disturbed returns the spans in which a fault concerns the key, or its aftermath does: leases of a
// client that was cut off end, a quarantine ends, and connections are made again.
func disturbed(run *history.Run, rules Rules, key string) (spans []span) {
	aftermath := int64(rules.wake() + Slack)
	if began := run.Mark(history.Tormented); began != 0 { // servers have just been started
		spans = append(spans, span{run.Start, began + int64(rules.Guard+Slack)})
	}
	for _, f := range run.Faults {
		if f.Concerns(key) {
			spans = append(spans, span{f.At, f.Until + aftermath})
		}
	}
	return spans
}

// starved returns the spans in which the client, or the laboratory, which is the network, did not
// run as it should have. A request of that time has probably timed out, so it has to be made again.
func starved(run *history.Run, client string) (spans []span) {
	const aftermath = int64(250 * time.Millisecond)
	for _, s := range run.Stalls {
		if s.Client == client || s.Client == history.Laboratory {
			spans = append(spans, span{s.At, s.Until + aftermath})
		}
	}
	return spans
}

// quiet returns what is left of a span without the others. These may overlap.
func quiet(whole span, without ...[]span) (rest []span) {
	all := slices.SortedFunc(slices.Values(slices.Concat(without...)), func(a, b span) int {
		return cmp.Compare(a.from, b.from)
	})
	for _, s := range all {
		if s.to < whole.from || s.from > whole.to {
			continue
		}
		if s.from > whole.from {
			rest = append(rest, span{whole.from, s.from})
		}
		whole.from = s.to
	}
	if whole.to > whole.from {
		rest = append(rest, whole)
	}
	return rest
}
