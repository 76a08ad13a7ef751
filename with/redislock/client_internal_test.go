package redislock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
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

// Close closes the backend that the first Obtain has made, and not that of NewOver.
func TestCloseOfTheBackend(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	memory := memhold.New()
	defer memory.Close()
	for name, c := range map[string]struct {
		client *Client
		closes bool
	}{"New": {New(client), true}, "NewOver": {NewOver(memory), false}} {
		c.client.Obtain(t.Context(), "k", time.Minute, nil)
		place, err := c.client.place()
		if err != nil {
			t.Fatal(err)
		}
		backend := c.client.sites.of[place].backend
		if err := c.client.Close(); err != nil {
			t.Error(err)
		}
		_, err = backend.Acquire(t.Context(), driver.Claim{Key: "k", Owner: "o", TTL: time.Minute})
		var is *driver.Error
		if closed := errors.As(err, &is) && is.Permanent; closed != c.closes {
			t.Errorf("%s: the backend says %v; want it closed: %v", name, err, c.closes)
		}
	}
}
