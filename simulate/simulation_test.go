package simulate

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

var verbose = flag.Bool("history", false,
	"print the events of each history, also of those that do not fail")

// TestSimulation runs random histories on all processors; see settings for what the environment
// says about them.
func TestSimulation(t *testing.T) {
	s, err := readSettings()
	if err != nil {
		t.Fatal(err)
	}
	if s.hand < 0 && s.histories != 1 {
		direct(t, s, runtime.GOMAXPROCS(0))
		return
	}
	c := &campaign{settings: s, start: time.Now(), log: newRing()}
	defer c.tell()
	for n := uint64(0); s.histories == 0 || n < s.histories; n++ {
		c.run(t, s.seed+n)
		if t.Failed() && s.histories > 0 && !s.goOn {
			return
		}
	}
}

// campaign is a series of histories, one after the other, because a bubble can only be suspended
// together with the whole program.
type campaign struct {
	settings
	start  time.Time
	told   time.Time
	log    *ring
	counts counts
}

// run runs one history, and says what it found.
func (c *campaign) run(t *testing.T, seed uint64) {
	c.announce(seed)
	p := c.plan(seed)
	h := simulate(t, p, c.log, c.ignored)
	c.counts.histories++
	c.counts.acquisitions += uint64(h.served.Load())
	c.counts.permits += uint64(h.permitted.Load())
	if time.Since(c.told) > time.Second {
		c.told = time.Now()
		c.tell()
	}
	if *verbose {
		fmt.Printf("%v\n%s", p, c.log.print(p))
	}
	if !h.failed() {
		return
	}
	c.counts.failed++
	t.Errorf("after %d histories, %v: %s", c.counts.histories,
		time.Since(c.start).Round(time.Millisecond), h.report())
	if c.hand >= 0 {
		// The log of a test that does not end is not printed.
		fmt.Printf("after %d histories, %v: %s", c.counts.histories,
			time.Since(c.start).Round(time.Millisecond), h.report())
	}
	if c.settings.minimise {
		c.minimise(t, p, h.violations[0].invariant)
	}
}

// simulate runs a plan in a bubble.
func simulate(t *testing.T, p *plan, log *ring, ignored map[string]bool) (h *history) {
	defer func() {
		if r := recover(); r != nil {
			if h == nil {
				panic(r)
			}
			h.violate("debris", "goroutines are left: %v", r)
		}
	}()
	synctest.Test(t, func(*testing.T) { h = p.run(log, ignored) })
	return h
}

// attempts is how often a smaller history is run before it counts as one that does not fail: not
// everything depends on the seed.
const attempts = 5

// minimise looks for a smaller history that breaks the same invariant, and prints its last events.
func (c *campaign) minimise(t *testing.T, p *plan, invariant string) {
	fails := func(l limits) *history {
		for range attempts {
			h := simulate(t, l.apply(c.plan(p.seed)), c.log, c.ignored)
			for _, v := range h.violations {
				if v.invariant == invariant {
					return h
				}
			}
		}
		return nil
	}
	best := c.limits
	if fails(best) == nil {
		fmt.Fprintf(os.Stderr, "seed %d did not fail again in %d tries\n", p.seed, attempts)
		return
	}
	for i := range featureNames {
		l := best
		if l.without |= 1 << i; p.has(1<<i) && fails(l) != nil {
			best = l
		}
	}
	for _, steps := range []int{10, 30, 100, 300} {
		l := best
		if l.steps = steps; fails(l) != nil {
			best = l
			break
		}
	}
	for workers := 1; workers < p.workers; workers *= 2 {
		l := best
		if l.workers = workers; fails(l) != nil {
			best = l
			break
		}
	}
	for processes := 1; processes < p.processes; processes++ {
		l := best
		if l.processes = processes; fails(l) != nil {
			best = l
			break
		}
	}
	if h := fails(best); h != nil {
		fmt.Fprintf(os.Stderr,
			"A smaller history that fails in this way: HOLDFAST_HISTORIES=1 HOLDFAST_SEED=%d %v\n%s\n%s\n",
			p.seed, best, h.report(), c.log.tail(h.plan, 150))
	}
}
