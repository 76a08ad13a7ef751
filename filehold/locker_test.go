//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// TestLockersTakeTurns has the goroutines of several Lockers, each with a Backend of its own, take
// turns at one key. Its invariants:
//
//   - never two are inside;
//   - each turn has a larger token than the one before;
//   - everybody gets all turns.
func TestLockersTakeTurns(t *testing.T) {
	const lockers, goroutines, turns = 3, 4, 25
	dir := t.TempDir()
	ctx := t.Context()
	var inside atomic.Int32
	var highest holdfast.Token // guarded by the lock
	total := 0
	var done sync.WaitGroup
	for range lockers {
		backend := open(t, dir)
		locker, err := holdfast.New(backend)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := locker.Close(); err != nil {
				t.Error(err)
			}
		})
		for range goroutines {
			done.Go(func() {
				for range turns {
					err := locker.Do(ctx, "k", func(_ context.Context, lock *holdfast.Lock) error {
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d are inside", n)
						}
						if lock.Token() <= highest {
							t.Errorf("token %d after %d", lock.Token(), highest)
						}
						highest = lock.Token()
						total++
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	done.Wait()
	if total != lockers*goroutines*turns {
		t.Errorf("%d turns, want %d", total, lockers*goroutines*turns)
	}
}
