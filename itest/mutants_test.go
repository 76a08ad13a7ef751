//go:build mutants

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

// mutant is a way to break the library, in mutants/, and what must notice it.
type mutant struct {
	patches []string
	checks  []string // one of these has to find a violation
	config  lab.Config
}

// broken are all of them. They need faults of the right kinds to show, so they get no others.
var broken = []mutant{
	{[]string{"release-without-compare"}, []string{"exclusion", "linearizability"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Faults: []string{"pause", "requests held"}}},
	{[]string{"renewal-outlives-deadline"}, []string{"loss", "exclusion"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Faults: []string{"partition", "requests held", "all lost"}}},
	{[]string{"validity-without-elapsed"}, []string{"exclusion"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Work: 100 * time.Millisecond, Faults: []string{"slow"}}},
	{[]string{"quarantine-off"}, []string{"exclusion", "linearizability"},
		lab.Config{Nodes: 3, Persistence: lab.Memory, Guard: 2 * time.Second, Faults: []string{"restart", "partition"}}},
	{[]string{"no-raise", "skewed-clocks"}, []string{"tokens"},
		lab.Config{Nodes: 3, Persistence: lab.Always, Guard: 2 * time.Second, Skew: time.Hour, Faults: []string{"partition", "freeze", "kill", "all lost"}}},
	{[]string{"clean-up-on-dead-context"}, []string{"idle"},
		lab.Config{Nodes: 1, Persistence: lab.Always, TTL: 20 * time.Second, Wait: 8 * time.Second, Work: 20 * time.Millisecond, Latency: 30 * time.Millisecond, Faults: []string{}}},
	{[]string{"wake-up-lost"}, []string{"idle"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Wait: 8 * time.Second, Faults: []string{}}},
	{[]string{"lease-for-ever"}, []string{"liveness", "orphans", "idle"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Faults: []string{"kill"}}},
	{[]string{"connection-left"}, []string{"leaks"},
		lab.Config{Nodes: 1, Persistence: lab.Always, Faults: []string{}}},
}

// A mutant has this much time under faults, in rounds, to be noticed.
const mutantRound, mutantRounds = 12 * time.Second, 5

// Each check can fail: for each there is a mutant that it notices.
func TestMutantsAreNoticed(t *testing.T) {
	for _, m := range broken {
		t.Run(m.patches[0], func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting
			program := build(t, m.patches...)
			for range mutantRounds {
				if noticed(t, placed(t, m.config, program), m.checks) {
					return
				}
			}
			t.Errorf("none of the checks %v has noticed it", m.checks)
		})
	}
}

// Two acquisitions with one token take three nodes and just the wrong moments: the laboratory would have to run for long to come across
// it. The simulated nodes of the quorum's own tests make it happen.
func TestMutantsAreNoticed_RaiseAny(t *testing.T) {
	t.Parallel()
	overlay, err := mutants.Overlay(t.TempDir(), "raise-any")
	if err != nil {
		t.Fatal(err)
	}
	const test = "TestRaiseNeedsTheKey"
	out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-run", "^"+test+"$", "github.com/holdfast-go/holdfast/quorum").CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("--- FAIL: "+test)) {
		t.Errorf("%s has not noticed it: %v\n%s", test, err, out)
	}
}

// noticed reports whether one of the checks finds a violation in a run.
func noticed(t *testing.T, c lab.Config, checks []string) bool {
	t.Helper()
	c.Duration = mutantRound
	result, err := lab.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range check.Violations(check.All(result.History, rules(result))) {
		if slices.Contains(checks, f.Check) {
			t.Logf("noticed with seed %d: %v", c.Seed, f)
			return true
		}
	}
	return false
}
