//go:build mutants

package mutants_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/patch"
)

var (
	histories = flag.String("histories", "2000", "how many histories a mutant may survive")
	seed      = flag.String("seed", "1", "of the first of them")
)

// survivors are the mutants that the simulator is not expected to catch, and why.
var survivors = map[string]string{
	"slot-not-brought": "a scout that has set out gets the slot a round trip later; " +
		"TestPermitsKeepTheOrderInMemory and two other tests notice",
}

// with has the features that a mutant needs if the simulator does not draw them by itself, or
// seldom together.
var with = map[string]string{
	"notice-while-asking":   "presences",
	"permit-after-deadline": "semaphores,suspends",
	"forbidden-not-told":    "forbids,outages,closes",

	"cut-off-release-not-told": "badContexts",

	"late-acquisition-taken":          "libraries",
	"late-mark-refuses-all":           "libraries",
	"late-number-forgotten":           "libraries,closes,outages,cancels",
	"late-number-not-told":            "libraries",
	"late-number-not-told-by-release": "libraries",
	"late-release-taken":              "libraries",
}

// on is what a mutant needs as a stack, if five of six histories cannot show it.
var on = map[string]string{
	"late-acquisition-taken":          "redis",
	"late-mark-refuses-all":           "redis",
	"late-number-forgotten":           "redis",
	"late-number-not-told":            "redis",
	"late-number-not-told-by-release": "redis",
	"late-release-taken":              "redis",
}

// hanging are the mutants that end a history by a deadlock. If any other ends without a broken
// invariant, the patch breaks more than it is meant to.
var hanging = map[string]bool{"asked-under-mutex": true}

// broken is how a history says which invariant it found broken.
var broken = regexp.MustCompile(`(?m)^after (\d+) histories.*\n\s+\S+: (\w+): (.*)`)

// TestMutants shows that the simulator notices when the kernel is broken.
func TestMutants(t *testing.T) {
	files, err := filepath.Glob("*" + patch.Extension)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, patch.Extension)
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			overlay, err := patch.Overlay(dir, os.DirFS("."), name)
			if err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(dir, "simulate.test")
			build := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", program, "..")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			start := time.Now()
			run := exec.Command(program, "-test.run=^TestSimulation$", "-test.timeout=20m")
			run.Env = append(os.Environ(), "HOLDFAST_SEED="+*seed, "HOLDFAST_HISTORIES="+*histories,
				"HOLDFAST_MINIMISE=no", "GOMAXPROCS=1", "HOLDFAST_WITH="+with[name],
				"HOLDFAST_STACK="+on[name])
			out, err := run.CombinedOutput()
			took := time.Since(start).Round(time.Second)
			found := broken.FindSubmatch(out)
			switch reason, expected := survivors[name]; {
			case err == nil && expected:
				t.Logf("survived %s histories in %v, as expected: %s", *histories, took, reason)
			case err == nil:
				t.Errorf("survived %s histories in %v", *histories, took)
			case found == nil && !hanging[name]:
				t.Errorf("no invariant is broken, ended in %v:\n%s", took, last(out, 600))
			case found == nil:
				t.Logf("ended in %v:\n%s", took, last(out, 600))
			default:
				t.Logf("caught after %s histories, %v: %s: %s", found[1], took, found[2], found[3])
			}
		})
	}
}

func last(text []byte, n int) []byte { return text[max(0, len(text)-n):] }
