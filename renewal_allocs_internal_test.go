package holdfast

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// A process that holds a hundred thousand locks takes in thousands of renewals each second.
func TestRenewalThatGoesWellAllocatesNothing(t *testing.T) {
	_, l := newLocker(t, WithTTL(time.Hour))
	lock, err := l.Acquire(context.Background(), "key")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release(context.Background())
	h := lock.lease
	claim := h.claim()
	allocs := testing.AllocsPerRun(100, func() {
		now := clock.Now()
		if err := l.watchdog.renewed(h, now, now, claim,
			driver.Result{State: driver.Held}); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("a renewal that goes well allocates %v times, want 0", allocs)
	}
}
