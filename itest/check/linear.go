package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast/itest/history"
)

// A lock as an object with one holder, or several that share it. It is acquired when it is free,
// with a token larger than all before. It is shared when nobody has it alone, with a token larger
// than all before that did not share it. A hold ends when its holder ends it, or when its lease
// ends.
type lockState struct {
	holder  string // who has it alone
	sharers string // who share it, in order, each with a separator behind it
	token   uint64 // the largest
	alone   uint64 // the largest of those who had it alone
}

// step is what happens to a lock.
type step uint8

const (
	acquires step = iota
	shares
	lowers   // has it alone, and shares it from now on
	mayLower // the same or nothing: nobody knows whether it was done
	ends
)

// String names it.
func (s step) String() string {
	return []string{"acquires", "shares", "downgrades", "may downgrade", "ends"}[s]
}

type lockStep struct {
	owner string
	step  step
	token uint64 // of an acquisition
}

// separator is behind the name of each owner that shares a lock. No name contains it.
const separator = "\n"

// then returns the state after a step, if the step can be made.
func (s lockState) then(in lockStep) (bool, lockState) {
	switch in.step {
	case acquires:
		return s.holder == "" && s.sharers == "" && in.token > s.token,
			lockState{holder: in.owner, token: in.token, alone: in.token}
	case shares:
		ok := s.holder == "" && in.token > s.alone
		return ok, s.joined(in.owner, in.token)
	case lowers, mayLower:
		if s.holder != in.owner {
			return in.step == mayLower, s
		}
		s.holder = ""
		return true, s.joined(in.owner, s.token)
	default:
		if s.holder == in.owner {
			s.holder = ""
			return true, s
		}
		before, after, ok := strings.Cut(separator+s.sharers, separator+in.owner+separator)
		s.sharers = strings.TrimPrefix(before+separator+after, separator)
		return ok, s
	}
}

// joined returns the state with one more owner that shares the lock.
func (s lockState) joined(owner string, token uint64) lockState {
	all := append(strings.SplitAfter(s.sharers, separator), owner+separator)
	slices.Sort(all)
	s.sharers, s.token = strings.Join(all, ""), max(s.token, token)
	return s
}

var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		return state.(lockState).then(input.(lockStep))
	},
	DescribeOperation: func(input, _ any) string {
		in := input.(lockStep)
		if in.token != 0 {
			return fmt.Sprintf("%s %v with %d", in.owner, in.step, in.token)
		}
		return fmt.Sprintf("%s %v", in.owner, in.step)
	},
}

const (
	// window is how many acquisitions are looked at together. The time of a search grows with what
	// overlaps, not with the number of acquisitions, but its memory does.
	window = 400
	// searchTime bounds the search in one window.
	searchTime = 20 * time.Second
)

// search looks for an order of the operations that the model allows.
var search = func(operations []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(lockModel, operations, searchTime)
}

// linearizability: each key behaves as one lock object, which several may share, found by an
// independent checker. A hold that was released ends between the call of Release and its return. A
// hold that was lost ends after its validity, at an unknown time. A search that takes too long is a
// violation: nothing was shown. If two holds were valid at once with an excuse, the rest has to be
// linearizable without these two.
func linearizability(run *history.Run, rules Rules) (found []Finding) {
	for _, key := range run.Keys() {
		granted := run.Granted(key)
		for first := 0; first < len(granted); first += window {
			// The windows overlap by one acquisition, so nothing falls between them.
			part := granted[max(0, first-1):min(len(granted), first+window)]
			f := Finding{Check: "linearizability", Key: key, At: part[0].Asked}
			result := search(operations(part))
			if result == porcupine.Illegal {
				f.Text = fmt.Sprintf("no order of the steps explains what %v to %v saw", part[0],
					part[len(part)-1])
				rest, reason, because := unexplained(run, rules, part)
				if reason != "" {
					if result = search(operations(rest)); result != porcupine.Unknown {
						if result == porcupine.Ok {
							f.Excuse, f.Because = reason, because
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

// unexplained returns the acquisitions without those that have an excuse for every overlap, and the
// first of the excuses, or "".
func unexplained(run *history.Run, rules Rules,
	part []*history.Acquisition) (rest []*history.Acquisition, reason, because string) {
	excused, kept := make(map[*history.Acquisition]bool), make(map[*history.Acquisition]bool)
	for _, p := range overlaps(part) {
		why, where := excuse(run, rules, p.first, p.second)
		reason, because = cmp.Or(reason, why), cmp.Or(because, where)
		for _, a := range []*history.Acquisition{p.first, p.second} {
			excused[a] = excused[a] || why != ""
			kept[a] = kept[a] || why == ""
		}
	}
	// A lease with which a set waits, or that is passed on, may be lost before it is granted, and
	// somebody else may have the lock in between.
	for i, a := range part {
		for _, other := range part[:i] {
			if !(a.Shared && other.Shared) && overtook(run, other, a) && !kept[a] {
				if why, where := excuse(run, rules, other, a); why != "" {
					reason, because = cmp.Or(reason, why), cmp.Or(because, where)
					excused[a] = true
				}
			}
		}
	}
	for _, a := range part {
		if kept[a] || !excused[a] {
			rest = append(rest, a)
		}
	}
	return rest, reason, because
}

// operations returns the steps of acquisitions, as the checker takes them.
func operations(part []*history.Acquisition) (all []porcupine.Operation) {
	for client, a := range part {
		add := func(in lockStep, call, returned int64) {
			in.owner = a.String()
			all = append(all, porcupine.Operation{ClientId: client, Input: in, Call: call,
				Return: returned})
		}
		began := acquires
		if a.Shared {
			began = shares
		}
		add(lockStep{step: began, token: a.Token}, a.Asked, a.Granted)
		switch {
		case a.Lowered != 0:
			add(lockStep{step: lowers}, a.Lower, a.Lowered)
		case a.Lower != 0:
			add(lockStep{step: mayLower}, a.Lower, math.MaxInt64)
		}
		add(lockStep{step: ends}, a.End(), ended(a))
	}
	return all
}

// ended returns when a hold had ended for sure.
func ended(a *history.Acquisition) int64 {
	if a.Released != 0 && a.Unclear == "" {
		return a.Released
	}
	return math.MaxInt64
}
