package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// unreleasing is a backend on which releases fail at once.
type unreleasing struct {
	driver.Backend
	mu sync.Mutex
	at []time.Time // when they were asked for
}

func (u *unreleasing) Release(context.Context, driver.Claim) (driver.Result, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at = append(u.at, time.Now())
	return driver.Result{}, &driver.Error{Maybe: true, Err: errors.New("connection broke")}
}

// An unconfirmed release is repeated until its lease is over, after pauses that grow to between
// half a second and a second: a backend that fails at once is not asked all the time.
func TestPausesBetweenOwedReleasesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		b := &unreleasing{Backend: memhold.New()}
		l, err := holdfast.New(b, holdfast.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		lock, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(t.Context()); !errors.Is(err, holdfast.ErrUnknown) {
			t.Errorf("Release: %v, want ErrUnknown", err)
		}
		time.Sleep(time.Hour)
		b.mu.Lock()
		defer b.mu.Unlock()
		// The first two are the caller's and the first one of the clean-up, which follows at once.
		shortest := 25 * time.Millisecond
		for i := 2; i < len(b.at); i++ {
			pause := b.at[i].Sub(b.at[i-1])
			if pause < shortest || pause > time.Second {
				t.Errorf("pause %d is %v; want %v to %v", i-1, pause, shortest, time.Second)
			}
			shortest = min(2*shortest, time.Second/2)
		}
		if n, most := len(b.at), int((ttl+5*time.Second)/(time.Second/2))+7; n < 20 || n > most {
			t.Errorf("asked %d times; want 20 to %d", n, most)
		}
		l.Close()
	})
}
