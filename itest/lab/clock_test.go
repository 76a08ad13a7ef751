//go:build unix

package lab_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/itest/lab"
)

func start(t *testing.T, persistence lab.Persistence) *lab.Node {
	t.Helper()
	nodes, stop, err := lab.StartNodes(t.Context(), t.TempDir(), 1, persistence)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return nodes[0]
}

// reading returns how far off the server's clock is: at least and at most.
func reading(t *testing.T, n *lab.Node) (least, most time.Duration) {
	t.Helper()
	before := time.Now()
	reply, err := n.Do("TIME")
	after := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	var parts [2]time.Duration
	for i, part := range reply.([]any) {
		if parts[i], err = time.ParseDuration(part.(string) + []string{"s", "us"}[i]); err != nil {
			t.Fatal(err)
		}
	}
	shown := time.Unix(0, int64(parts[0]+parts[1]))
	return shown.Sub(after), shown.Sub(before) + time.Microsecond
}

// A server's wall clock is set, goes at another rate without a jump, and stays wrong after a
// restart.
func TestClock(t *testing.T) {
	n := start(t, lab.Memory)
	off := func(least, most time.Duration) {
		t.Helper()
		if a, b := reading(t, n); b < least || a > most {
			t.Errorf("the clock is off by %v to %v, want %v to %v", a, b, least, most)
		}
	}
	set := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	off(0, 0)
	set(n.SetClock(time.Hour))
	off(time.Hour, time.Hour)
	set(n.StepClock(-3 * time.Hour))
	off(-2*time.Hour, -2*time.Hour)
	set(n.SetClock(0))

	// Twice as fast: it is off by the time that has passed.
	began := time.Now()
	set(n.RateClock(1_000_000))
	begun := time.Now()
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for least := time.Duration(0); least < 20*time.Millisecond; least, _ = reading(t, n) {
		<-ticks.C
	}
	least := time.Since(begun)
	set(n.RateClock(0))
	most := time.Since(began)
	off(least, most)
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	off(least, most)
}
