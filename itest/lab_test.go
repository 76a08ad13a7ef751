package itest

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/lab"
	"github.com/holdfast-go/holdfast/itest/report"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "what the nemesis draws from; 0 for a new one")
	durationFlag = flag.Duration("duration", 25*time.Second, "how long faults go on, in all modes together")
)

// modes are what the laboratory locks on. Each has its own weakness: what a server keeps, and whether the nemesis may break what the
// documentation says that exclusion rests on.
var modes = []lab.Config{
	{Nodes: 1, Persistence: lab.Always},
	{Nodes: 3, Persistence: lab.Memory, Guard: 2 * time.Second},
	{Nodes: 5, Persistence: lab.EverySec, Guard: 2 * time.Second},
}

// complete fills in what all runs have in common.
func complete(t *testing.T, c lab.Config, program string) lab.Config {
	c.TTL, c.Clients, c.Workers, c.Keys = time.Second, 4, 4, 4
	c.Program, c.Dir = program, t.TempDir()
	if c.Seed = *seedFlag; c.Seed == 0 {
		c.Seed = rand.Uint64() >> 12 // short to type
	}
	return c
}

// run runs the laboratory, and fails the test if a promise was not kept.
func run(t *testing.T, c lab.Config) (*lab.Result, []check.Finding) {
	t.Helper()
	t.Logf("%s, %s, seed %d", c.Mode(), c.Persistence, c.Seed)
	result, err := lab.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	found := check.All(result.History, rules(result))
	for _, f := range check.Violations(found) {
		t.Errorf("%v", f)
	}
	figures := report.Count(result, found)
	t.Log(figures)
	if figures.Granted < 50 {
		t.Errorf("only %d acquisitions: that proves nothing", figures.Granted)
	}
	if t.Failed() {
		keep(t, c.Dir)
	}
	return result, found
}

func rules(r *lab.Result) check.Rules {
	return check.Rules{TTL: r.Config.TTL, Guard: r.Config.Guard, Calm: r.History.Mark(lab.Calm)}
}

// keep saves the logs of a run that failed from being removed.
func keep(t *testing.T, dir string) {
	kept, err := os.MkdirTemp("", "itest")
	if err == nil {
		err = os.CopyFS(kept, os.DirFS(dir))
	}
	t.Logf("what was recorded is in %s (%v)", kept, err)
}

func build(t *testing.T, overlay string) string {
	t.Helper()
	program, err := lab.Build(t.Context(), t.TempDir(), overlay)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// R1, R3 and the other promises, on real servers under faults.
func TestR1R3R38_PromisesUnderFaults(t *testing.T) {
	program := build(t, "")
	for _, c := range modes {
		t.Run(c.Mode(), func(t *testing.T) {
			c := complete(t, c, program)
			c.Duration = *durationFlag / time.Duration(len(modes))
			run(t, c)
		})
	}
}
