package redislock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/memhold"
)

// Locks that have ended take no memory, however many keys there were.
func TestNothingStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := memhold.New()
		defer backend.Close()
		c := NewOver(backend)
		defer c.Close()
		obtain := func() *Lock {
			lock, err := c.ObtainMulti(t.Context(), []string{"k", "j"}, time.Minute, nil)
			if err != nil {
				t.Fatal(err)
			}
			return lock
		}
		kept := func(want int) {
			t.Helper()
			if synctest.Wait(); len(c.sites.of[nil].held) != want {
				t.Errorf("keys are kept: %v, want %d", c.sites.of[nil].held, want)
			}
		}
		lock := obtain()
		kept(1)
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
		kept(0)
		obtain()
		time.Sleep(time.Minute) // it ends by itself
		kept(0)
	})
}
