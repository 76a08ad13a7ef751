package holdfast

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/memhold"
)

// A set that puts keys back to wait for an earlier one keeps its nested locks: it does not nest
// anew and leave the first ones to the outermost lock.
//
// Fails if the code is broken like this: putBack without own.
func TestSetKeepsItsNestedLocksWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, l := newLocker(t)
		client := memory.Client()
		t.Cleanup(func() { client.Close() })
		other, taken := lockOn(t, client, "a")
		defer other.Close()
		outer, err := l.Acquire(context.Background(), "b")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { taken.Release(context.Background()) })
		set, err := l.AcquireAll(outer.Context(context.Background()), []string{"a", "b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		nested := 0
		outer.cohort.shard.mu.Lock()
		for e := range outer.ends {
			if _, ok := e.(*Lock); ok {
				nested++
			}
		}
		outer.cohort.shard.mu.Unlock()
		if nested != 1 {
			t.Errorf("%d locks are nested in the outermost one, want 1", nested)
		}
		if err := set.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func lockOn(t *testing.T, client *memhold.Backend, key string) (*Locker, *Lock) {
	t.Helper()
	l, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := l.Acquire(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return l, lock
}
