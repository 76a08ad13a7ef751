//go:build unix

package itest

import (
	"flag"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/lab"
	"github.com/holdfast-go/holdfast/itest/mutants"
	"github.com/holdfast-go/holdfast/itest/report"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "what the nemesis draws from; 0 for a new one")
	durationFlag = flag.Duration("duration", 12*time.Second, "for how long faults go on")
)

// placed gives a run its program, directory and seed.
func placed(t *testing.T, c lab.Config, program string) lab.Config {
	c.Program, c.Dir = program, t.TempDir()
	if c.Seed = *seedFlag; c.Seed == 0 {
		c.Seed = rand.Uint64() >> 12 // short to type
	}
	return c
}

// runs are those of one test. A machine that was too busy to show all that a run has to show says
// nothing of the library, so it does not fail the test; but most runs have to show everything.
type runs struct {
	mu        sync.Mutex
	all, open int
}

func (r *runs) count(open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all++; open {
		r.open++
	}
}

// enough reports whether most of them have shown everything.
func (r *runs) enough() bool { return 2*r.open <= r.all }

// judge fails the test, when its runs are over, if they have not shown enough.
func (r *runs) judge(t *testing.T) {
	t.Cleanup(func() {
		if !r.enough() {
			t.Errorf("the machine was too busy: %d of %d runs have not shown everything", r.open,
				r.all)
		}
	})
}

func TestMostRunsHaveToShowEverything(t *testing.T) {
	for _, c := range []struct {
		open, all int
		want      bool
	}{{0, 9, true}, {4, 9, true}, {5, 9, false}, {1, 2, true}, {1, 1, false}} {
		var r runs
		for i := range c.all {
			r.count(i < c.open)
		}
		if got := r.enough(); got != c.want {
			t.Errorf("%d of %d runs have not shown everything: enough: %t", c.open, c.all, got)
		}
	}
}

// run runs the laboratory, and fails the test if a promise was not kept.
func (r *runs) run(t *testing.T, c lab.Config) {
	t.Helper()
	c.Least = 50 // fewer prove nothing
	c.Stale = min(c.Stale, c.Least)
	t.Logf("%s, %s, seed %d", c.Mode(), c.Persistence, c.Seed)
	result, err := lab.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	found := check.Recorded(result.History)
	open := false
	for _, f := range check.Violations(found) {
		if f.Open {
			open = true
			t.Logf("nothing shown: %v", f)
			continue
		}
		t.Errorf("%v", f)
	}
	r.count(open)
	t.Log(report.Count(result, found))
	if t.Failed() {
		keep(t, c.Dir)
	}
}

// keep saves the logs of a run that failed from being removed.
func keep(t *testing.T, dir string) {
	kept, err := os.MkdirTemp("", "itest")
	if err == nil {
		err = os.CopyFS(kept, os.DirFS(dir))
	}
	t.Logf("what was recorded is in %s (%v)", kept, err)
}

// build builds the client program, with patches of the library if any are named.
func build(t *testing.T, patches ...string) string {
	t.Helper()
	dir, overlay := t.TempDir(), ""
	if patches != nil {
		var err error
		if overlay, err = mutants.Overlay(dir, patches...); err != nil {
			t.Fatal(err)
		}
	}
	program, err := lab.Build(t.Context(), dir, overlay)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// R1, R3, R6 and the other promises, on real servers under faults.
func TestR1R3R6R38_PromisesUnderFaults(t *testing.T) {
	plain, skewed := build(t), build(t, mutants.Skewed)
	var r runs
	r.judge(t)
	for _, c := range lab.Promises {
		program := plain
		if c.Skew > 0 {
			program = skewed
		}
		t.Run(c.Mode(), func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting
			c := placed(t, c, program)
			c.Duration = *durationFlag
			r.run(t, c)
		})
	}
}
