package check

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast/itest/history"
)

// A lock as an object with one holder: it is acquired when it is free, with a token larger than all before, and it becomes free when
// its holder ends its hold, or when its lease does.
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
	// window is how many acquisitions are looked at together: the search is exponential in what overlaps, not in what
	// there is, but memory is not.
	window = 400
	// searchTime bounds the search in one window.
	searchTime = 20 * time.Second
)

// linearizability: each key behaves as one lock object, found by an independent checker. A hold that was released ends between the call of
// Release and its return; one that was lost ends after its validity, at an unknown time.
func linearizability(run *history.Run, _ Rules) (found []Finding) {
	for _, key := range run.Keys() {
		granted := run.Granted(key)
		for first := 0; first < len(granted); first += window {
			// The windows share one acquisition, so nothing falls between them.
			part := granted[max(0, first-1):min(len(granted), first+window)]
			var operations []porcupine.Operation
			for i, a := range part {
				client := i
				operations = append(operations,
					porcupine.Operation{ClientId: client, Input: lockStep{a.String(), a.Token}, Call: a.Asked, Return: a.Granted},
					porcupine.Operation{ClientId: client, Input: lockStep{owner: a.String()}, Call: a.End(), Return: ended(a)})
			}
			at := part[0].Asked
			switch porcupine.CheckOperationsTimeout(lockModel, operations, searchTime) {
			case porcupine.Illegal:
				last := part[len(part)-1]
				found = append(found, Finding{Check: "linearizability", Key: key, At: at, Excuse: excuse(run, at, last.Granted),
					Text: fmt.Sprintf("no order of the steps explains what %v to %v saw", part[0], last)})
			case porcupine.Unknown:
				found = append(found, Finding{Check: "linearizability", Key: key, At: at, Excuse: "not decided in time",
					Text: fmt.Sprintf("the search from %v on took longer than %v", part[0], searchTime)})
			}
		}
	}
	return found
}

// ended is when a hold had ended for sure.
func ended(a *history.Acquisition) int64 {
	if a.Released != 0 && a.Unclear == "" {
		return a.Released
	}
	return math.MaxInt64
}
