package quorum_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// line is five waiters for a lock that is held, each a Locker on a client of its own. They came one
// after the other.
type line struct {
	holder *client
	claim  driver.Claim // the holder's
	waiter []*client

	all    sync.WaitGroup
	mu     sync.Mutex
	served []int
}

func newLine(t *testing.T, c *cluster) *line {
	t.Helper()
	l := &line{holder: c.client()}
	l.claim = l.holder.claim()
	l.claim.TTL = time.Minute
	l.holder.hold(l.claim)
	for i := range 5 {
		w := c.client()
		l.waiter = append(l.waiter, w)
		locker, err := holdfast.New(w.Quorum, holdfast.WithPrefix(""))
		if err != nil {
			t.Fatal(err)
		}
		l.all.Go(func() {
			defer locker.Close()
			lock, err := locker.Acquire(context.Background(), "k")
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			l.mu.Lock()
			l.served = append(l.served, i)
			l.mu.Unlock()
			if err := lock.Release(context.Background()); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		time.Sleep(100 * time.Millisecond)
	}
	return l
}

// mustKeepOrder releases the lock. Then all must be served in the order in which they came.
func (l *line) mustKeepOrder(t *testing.T) {
	t.Helper()
	l.holder.release(l.claim, driver.Held)
	l.all.Wait()
	if !slices.IsSorted(l.served) {
		t.Errorf("served in the order %v; want that in which they came", l.served)
	}
}
