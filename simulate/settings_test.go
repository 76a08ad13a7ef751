package simulate

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// settings are what the environment says about the histories to run.
type settings struct {
	seed      uint64          // HOLDFAST_SEED: of the first; the others follow
	histories uint64          // HOLDFAST_HISTORIES: how many; 0: without end
	with      feature         // HOLDFAST_WITH: features that each has
	ignored   map[string]bool // HOLDFAST_IGNORE: invariants that may be broken
	goOn      bool            // HOLDFAST_GO_ON: go on after a history that fails
	minimise  bool            // HOLDFAST_MINIMISE: not if it is "no", nor with HOLDFAST_GO_ON
	// HOLDFAST_HAND: which of several programs this is; -1: the one that directs them
	hand int
	limits
}

// stackKind, if it is set, is what each history stands on: memory, quorum or redis
// (HOLDFAST_STACK).
var stackKind string

// limits make a history smaller.
type limits struct {
	without                   feature // HOLDFAST_WITHOUT: features that none has
	processes, workers, steps int     // HOLDFAST_AT_MOST; 0: as drawn
}

func (l limits) String() string {
	return fmt.Sprintf("HOLDFAST_WITHOUT=%v HOLDFAST_AT_MOST=%d,%d,%d", l.without, l.processes,
		l.workers, l.steps)
}

func (l limits) apply(p *plan) *plan {
	atMost := func(n *int, limit int) {
		if limit > 0 {
			*n = min(*n, limit)
		}
	}
	atMost(&p.processes, l.processes)
	atMost(&p.workers, l.workers)
	atMost(&p.steps, l.steps)
	p.without(l.without)
	return p
}

// plan draws the plan of a seed.
func (s *settings) plan(seed uint64) *plan { return s.limits.apply(newPlan(seed, s.with)) }

func readSettings() (s settings, err error) {
	number := func(variable string, otherwise uint64) uint64 {
		text := os.Getenv(variable)
		if text == "" || err != nil {
			return otherwise
		}
		n, bad := strconv.ParseUint(text, 10, 64)
		if bad != nil {
			err = fmt.Errorf("%s: %w", variable, bad)
		}
		return n
	}
	features := func(variable string) feature {
		set, bad := featuresNamed(os.Getenv(variable))
		if bad != nil && err == nil {
			err = fmt.Errorf("%s: %w", variable, bad)
		}
		return set
	}
	s.seed = number("HOLDFAST_SEED", uint64(time.Now().UnixNano()))
	s.histories = number("HOLDFAST_HISTORIES", defaultHistories)
	stackKind = os.Getenv("HOLDFAST_STACK")
	s.hand = int(number("HOLDFAST_HAND", 0)) - 1
	s.with, s.without = features("HOLDFAST_WITH"), features("HOLDFAST_WITHOUT")
	s.goOn = os.Getenv("HOLDFAST_GO_ON") != ""
	s.minimise = os.Getenv("HOLDFAST_MINIMISE") != "no" && !s.goOn
	s.ignored = make(map[string]bool)
	for name := range strings.SplitSeq(os.Getenv("HOLDFAST_IGNORE"), ",") {
		s.ignored[name] = true
	}
	if most := os.Getenv("HOLDFAST_AT_MOST"); most != "" && err == nil {
		_, err = fmt.Sscanf(most, "%d,%d,%d", &s.processes, &s.workers, &s.steps)
	}
	return s, err
}
