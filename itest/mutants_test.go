//go:build mutants && unix

package itest

import (
	"bytes"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/lab"
	"github.com/holdfast-go/holdfast/itest/mutants"
)

// A mutant has this much time under faults, in rounds, to be noticed.
const mutantRound, mutantRounds = 12 * time.Second, 12

// Each check can fail: there is a mutant that it notices.
func TestMutantsAreNoticed(t *testing.T) {
	for _, m := range broken {
		t.Run(m.patches[0], func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting
			program := build(t, m.patches...)
			blind := m.checks // so far
			for range mutantRounds {
				seen := noticed(t, placed(t, m.config, program))
				blind = slices.DeleteFunc(slices.Clone(blind), func(name string) bool {
					return seen[name]
				})
				if len(blind) == 0 {
					return
				}
			}
			t.Errorf("the checks %v have not noticed it", blind)
		})
	}
}

// Two acquisitions with one token take three nodes and just the wrong moments. The laboratory would
// have to run for long to find them. The simulated nodes of the quorum's own tests make them
// happen.
func TestMutantsAreNoticed_RaiseAny(t *testing.T) {
	t.Parallel()
	overlay, err := mutants.Overlay(t.TempDir(), "raise-any")
	if err != nil {
		t.Fatal(err)
	}
	const test = "TestRaiseNeedsTheKey"
	out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-run",
		"^"+test+"$", "github.com/holdfast-go/holdfast/quorum").CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("--- FAIL: "+test)) {
		t.Errorf("%s has not noticed it: %v\n%s", test, err, out)
	}
}

// noticed returns the checks that find a violation in a run.
func noticed(t *testing.T, c lab.Config) map[string]bool {
	t.Helper()
	c.Duration, c.Stale = mutantRound, 0
	result, err := lab.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	seen, letIn := make(map[string]bool), letIn(result)
	for _, f := range check.Violations(check.All(result.History, check.RulesOf(result.History))) {
		if f.Check == lab.Broken {
			t.Fatal(f)
		}
		if f.Open {
			continue
		}
		names := []string{f.Check}
		if letIn[f.Store] {
			names = append(names, f.Check+": "+f.Store)
		} else if f.Store != "" {
			t.Errorf("seed %d: nothing was let in too late, and yet: %v", c.Seed, f)
		}
		for _, name := range names {
			if !seen[name] {
				t.Logf("%s noticed with seed %d: %.300v", name, c.Seed, f)
			}
			seen[name] = true
		}
	}
	return seen
}

// letIn returns the guarded stores that have let a late write in.
func letIn(result *lab.Result) map[string]bool {
	stores := make(map[string]bool)
	for _, g := range check.Guards(result.History) {
		stores[g.Store] = g.Accepted > 0
	}
	return stores
}
