package check

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast/itest/history"
)

// A lock as an object with one holder: it is acquired when it is free, with a token larger than all
// before, and it becomes free when its holder ends its hold, or when its lease does.
type lockState struct {
	holder string
	token  uint64
}

type lockStep struct {
	owner string
	token uint64 // of an acquisition; 0 for the end of a hold
}

var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(lockState), input.(lockStep)
		if in.token == 0 {
			return s.holder == in.owner, lockState{token: s.token}
		}
		return s.holder == "" && in.token > s.token, lockState{in.owner, in.token}
	},
	DescribeOperation: func(input, _ any) string {
		if in := input.(lockStep); in.token != 0 {
			return fmt.Sprintf("%s acquires with %d", in.owner, in.token)
		}
		return input.(lockStep).owner + " ends"
	},
}

const (
	// window is how many acquisitions are looked at together: the search is exponential in what
	// overlaps, not in what there is, but memory is not.
	window = 400
	// searchTime bounds the search in one window.
	searchTime = 20 * time.Second
)

// search looks for an order of the operations that the model allows.
var search = func(operations []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(lockModel, operations, searchTime)
}

// linearizability: each key behaves as one lock object, found by an independent checker. A hold
// that was released ends between the call of Release and its return; one that was lost ends after
// its validity, at an unknown time. A search that takes too long is a violation: nothing was shown.
// Where two were valid at once and that has an excuse, it holds if the rest is linearizable without
// these two.
func linearizability(run *history.Run, rules Rules) (found []Finding) {
	for _, key := range run.Keys() {
		granted := run.Granted(key)
		for first := 0; first < len(granted); first += window {
			// The windows share one acquisition, so nothing falls between them.
			part := granted[max(0, first-1):min(len(granted), first+window)]
			f := Finding{Check: "linearizability", Key: key, At: part[0].Asked}
			result := search(operations(part))
			if result == porcupine.Illegal {
				f.Text = fmt.Sprintf("no order of the steps explains what %v to %v saw", part[0],
					part[len(part)-1])
				rest, reason := unexplained(run, rules, part)
				if reason != "" {
					if result = search(operations(rest)); result != porcupine.Unknown {
						if result == porcupine.Ok {
							f.Excuse = reason
						}
						result = porcupine.Illegal
					}
				}
			}
			if f.Open = result == porcupine.Unknown; f.Open {
				f.Text = fmt.Sprintf(
					"the search from %v on took longer than %v, so nothing was shown",
					part[0], searchTime)
			}
			if result != porcupine.Ok {
				found = append(found, f)
			}
		}
	}
	return found
}

// unexplained are the acquisitions without those that have an excuse for whatever they overlap
// with, and the first of the excuses; it is empty if there is none.
func unexplained(run *history.Run, rules Rules,
	part []*history.Acquisition) (rest []*history.Acquisition, reason string) {
	excused, kept := make(map[*history.Acquisition]bool), make(map[*history.Acquisition]bool)
	for _, p := range overlaps(part) {
		why := excuse(run, rules, p.first, p.second)
		reason = cmp.Or(reason, why)
		for _, a := range []*history.Acquisition{p.first, p.second} {
			excused[a] = excused[a] || why != ""
			kept[a] = kept[a] || why == ""
		}
	}
	for _, a := range part {
		if kept[a] || !excused[a] {
			rest = append(rest, a)
		}
	}
	return rest, reason
}

// operations are the steps of acquisitions, as the checker takes them.
func operations(part []*history.Acquisition) (all []porcupine.Operation) {
	for client, a := range part {
		all = append(all,
			porcupine.Operation{ClientId: client, Input: lockStep{a.String(), a.Token},
				Call: a.Asked, Return: a.Granted},
			porcupine.Operation{ClientId: client, Input: lockStep{owner: a.String()}, Call: a.End(),
				Return: ended(a)})
	}
	return all
}

// ended is when a hold had ended for sure.
func ended(a *history.Acquisition) int64 {
	if a.Released != 0 && a.Unclear == "" {
		return a.Released
	}
	return math.MaxInt64
}
