package drivertest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memhold"
)

// pausing is a sound backend on a machine that pauses, by the hooks before and after a call.
func pausing(before, after func()) *mutant {
	m := &mutant{
		options: []memhold.Option{memhold.WithPresence(3 * time.Second)},
		// As of backends whose conformance is checked in real time.
		harness: func(h *drivertest.Harness) { h.TTL = 8 * time.Second },
	}
	m.acquire = func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
		error) {
		before()
		defer after()
		return b.Acquire(ctx, c)
	}
	m.renew = func(b *memhold.Backend, ctx context.Context,
		claims []driver.Claim) ([]driver.Result, error) {
		before()
		defer after()
		return b.Renew(ctx, claims)
	}
	m.release = func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
		error) {
		before()
		defer after()
		return b.Release(ctx, c)
	}
	m.inspect = func(b *memhold.Backend, ctx context.Context, key string) (driver.Entry, error) {
		before()
		defer after()
		return b.Inspect(ctx, key)
	}
	return m
}

// TestPausePasses checks that no rule takes a machine that pauses for a broken backend: before each
// of the first calls of a rule, or after it, four times the short lease pass. Rules of very many
// calls have long leases.
func TestPausePasses(t *testing.T) {
	const (
		pause     = 4 * drivertest.DefaultShortTTL
		first     = 16
		countless = 700
	)
	for _, rule := range drivertest.RulesFor(harnessOf(&mutant{})) {
		if strings.HasPrefix(rule, "Load/") {
			continue
		}
		var calls atomic.Int64
		count := pausing(func() { calls.Add(1) }, func() {})
		if failed, log := drivertest.Broken(t, harnessOf(count), rule); failed {
			t.Errorf("%s without any pause: %s", rule, log)
		}
		if calls.Load() > countless {
			continue
		}
		for n := range min(calls.Load(), first) {
			for when, late := range map[string]bool{"before": false, "after": true} {
				var before, after atomic.Int64
				m := pausing(func() {
					if before.Add(1) == n+1 && !late {
						time.Sleep(pause)
					}
				}, func() {
					if after.Add(1) == n+1 && late {
						time.Sleep(pause)
					}
				})
				if failed, log := drivertest.Broken(t, harnessOf(m), rule); failed {
					t.Errorf("%s with a pause %s call %d: %s", rule, when, n+1, log)
				}
			}
		}
	}
}
