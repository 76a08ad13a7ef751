package history_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/memhold"
)

// asked is a backend that notes the keys that it was asked for.
type asked struct {
	driver.Backend
	keys chan string
}

func (a asked) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	a.keys <- claim.Key
	return a.Backend.Acquire(ctx, claim)
}

// The keys of a semaphore are those that the library locks, also for a waiter.
func TestKeysOfASemaphore(t *testing.T) {
	backend := asked{memhold.New(), make(chan string, 1000)}
	locker, err := holdfast.New(backend)
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	defer locker.Close()
	const permits = 3
	want := history.SemaphoreKeys("s", permits)
	for fewer := 1; fewer < permits; fewer++ { // such processes are not here
		want = slices.DeleteFunc(want, func(key string) bool {
			return key == history.GateKey("s", fewer)
		})
	}
	var seen []string
	for range permits {
		lock, err := locker.Acquire(t.Context(), "s", holdfast.WithPermits(permits))
		if err != nil {
			t.Fatal(err)
		}
		if key := history.SlotKey("s", lock.Slot()); !slices.Contains(want, key) {
			t.Errorf("%s is no key of the semaphore: %q", key, want)
		}
	}
	other, err := holdfast.New(backend)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go other.Acquire(ctx, "s", holdfast.WithPermits(permits))
	for len(seen) < len(want) {
		if key := <-backend.keys; !slices.Contains(seen, key) {
			seen = append(seen, key)
		}
	}
	slices.Sort(seen)
	if !slices.Equal(seen, slices.Sorted(slices.Values(want))) {
		t.Errorf("the library locks %q, want %q", seen, want)
	}
}
