//go:build mutants

package itest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/lab"
)

// mutant is a way to break the library, in mutants/, and what must notice it.
type mutant struct {
	patches []string
	checks  []string // one of these has to find a violation
	config  lab.Config
}

// mutants need faults of the right kinds to show, so they get no others.
var mutants = []mutant{
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
	for _, m := range mutants {
		t.Run(m.patches[0], func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting
			program := build(t, overlay(t, m.patches...))
			for range mutantRounds {
				if noticed(t, placed(t, m.config, program), m.checks) {
					return
				}
			}
			t.Errorf("none of the checks %v has noticed it", m.checks)
		})
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

// overlay applies patches to copies of files, and gives the description of them that go build wants.
func overlay(t *testing.T, patches ...string) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replaced := make(map[string]string) // file of the repository: the copy
	for _, name := range patches {
		text, err := os.ReadFile(filepath.Join("mutants", name+".patch"))
		if err != nil {
			t.Fatal(err)
		}
		changes, err := parsePatch(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range changes {
			original := filepath.Join(root, filepath.FromSlash(c.file))
			source := original
			if copied := replaced[original]; copied != "" {
				source = copied
			}
			data, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(data, c.old); n != 1 {
				t.Fatalf("%s: this is %d times in %s, want once: the code has changed, and the mutant has to\n%s", name, n, c.file, c.old)
			}
			copied := filepath.Join(dir, strings.ReplaceAll(c.file, "/", "_"))
			if err := os.WriteFile(copied, bytes.Replace(data, c.old, c.new, 1), 0o644); err != nil {
				t.Fatal(err)
			}
			replaced[original] = copied
		}
	}
	description, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, description, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// change is one place of a patch.
type change struct {
	file     string // from the root of the repository
	old, new []byte
}

// parsePatch reads a patch: comments, names of files, and for each file what is replaced by what.
//
//	# What it breaks.
//	quorum/acquire.go
//	<<<<
//	old lines
//	====
//	new lines
//	>>>>
func parsePatch(text []byte) (changes []change, err error) {
	file, into := "", (*[]byte)(nil)
	for line := range bytes.Lines(text) {
		switch word := strings.TrimSpace(string(line)); {
		case into == nil && (word == "" || strings.HasPrefix(word, "#")):
		case into == nil && word == "<<<<":
			changes = append(changes, change{file: file})
			into = &changes[len(changes)-1].old
		case into == nil:
			file = word
		case word == "====":
			into = &changes[len(changes)-1].new
		case word == ">>>>":
			into = nil
		default:
			*into = append(*into, line...)
		}
	}
	for i, c := range changes {
		if c.file == "" || len(c.old) == 0 {
			return nil, fmt.Errorf("place %d names no file, or nothing to replace", i+1)
		}
		// A line may go on behind what is given of it.
		changes[i].old = bytes.TrimSuffix(c.old, []byte("\n"))
		changes[i].new = bytes.TrimSuffix(c.new, []byte("\n"))
	}
	if len(changes) == 0 || into != nil {
		return nil, fmt.Errorf("not complete")
	}
	return changes, nil
}
