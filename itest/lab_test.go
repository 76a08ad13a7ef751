//go:build unix

package itest

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/lab"
	"github.com/holdfast-go/holdfast/itest/mutants"
	"github.com/holdfast-go/holdfast/itest/report"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "what the nemesis draws from; 0 for a new one")
	durationFlag = flag.Duration("duration", 25*time.Second, "for how long faults go on")
)

// placed gives a run its program, directory and seed.
func placed(t *testing.T, c lab.Config, program string) lab.Config {
	c.Program, c.Dir = program, t.TempDir()
	if c.Seed = *seedFlag; c.Seed == 0 {
		c.Seed = rand.Uint64() >> 12 // short to type
	}
	return c
}

// run runs the laboratory, and fails the test if a promise was not kept.
func run(t *testing.T, c lab.Config) (*lab.Result, []check.Finding) {
	t.Helper()
	c.Least = 50 // fewer prove nothing
	c.Stale = min(c.Stale, c.Least)
	t.Logf("%s, %s, seed %d", c.Mode(), c.Persistence, c.Seed)
	result, err := lab.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	found := check.Recorded(result.History)
	for _, f := range check.Violations(found) {
		t.Errorf("%v", f)
	}
	figures := report.Count(result, found)
	t.Log(figures)
	if t.Failed() {
		keep(t, c.Dir)
	}
	return result, found
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
	for _, c := range lab.Promises {
		program := plain
		if c.Skew > 0 {
			program = skewed
		}
		t.Run(c.Mode(), func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting
			c := placed(t, c, program)
			c.Duration = *durationFlag
			run(t, c)
		})
	}
}
