//go:build unix

package lab

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// Clients have all the time of a run, even if there is nothing to break. Otherwise what shows only
// after a while would never show.
func TestNothingToBreakTakesAsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const duration = 12 * time.Second
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), duration)
		defer cancel()
		n := &nemesis{run: &run{config: Config{TTL: time.Second}},
			draw: rand.New(rand.NewPCG(1, 2))}
		n.work(ctx)
		if took := time.Since(began); took != duration {
			t.Errorf("it took %v of %v", took, duration)
		}
	})
}

// If there were too few acquisitions, and faults go on, they do not begin again with those that
// were drawn before.
func TestEveryRoundDrawsOn(t *testing.T) {
	var drawn []uint64
	faults := clientFaults
	clientFaults = []fault{{name: "pause", weight: 1, do: func(n *nemesis) {
		drawn = append(drawn, n.draw.Uint64())
	}}}
	defer func() { clientFaults = faults }()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := &run{config: Config{Dir: dir, TTL: time.Second, Duration: 10 * time.Second,
			Faults: []string{"pause"}, Least: 1}}
		var err error
		if r.log, err = history.Create(dir+"/lab.jsonl", ""); err != nil {
			t.Fatal(err)
		}
		defer r.log.Close()
		if err := r.torment(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if len(drawn) < mostRounds {
		t.Errorf("drawn %d times in %d rounds", len(drawn), mostRounds)
	}
	slices.Sort(drawn)
	if again := len(drawn) - len(slices.Compact(drawn)); again > 0 {
		t.Errorf("%d of %d were drawn before", again, len(drawn))
	}
}
