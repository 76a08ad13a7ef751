//go:build unix

package redislock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/with/redislock"
)

// Clients over one go-redis client have their locks in common: the Close of any of them ends all,
// whichever has obtained some before, and others may be obtained after it.
func TestCloseOfAnotherClient(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	defer client.Close()
	const long = time.Minute
	a, b, unused := redislock.New(client), redislock.New(client), redislock.New(client)
	for _, c := range []*redislock.Client{a, b} {
		l, err := c.Obtain(t.Context(), "k", long, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for i, closes := range []*redislock.Client{b, a, unused, b, a} {
		l, err := b.Obtain(t.Context(), "k", long, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = redislock.Obtain(t.Context(), client, "k", long, nil)
		if err != redislock.ErrNotObtained {
			t.Errorf("Obtain = %v, want ErrNotObtained", err)
		}
		if err := closes.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != redislock.ErrLockNotHeld {
			t.Errorf("Release after Close %d = %v, want ErrLockNotHeld", i+1, err)
		}
	}
}
