package quorum_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// renewing counts the renewals of a node.
type renewing struct {
	driver.Backend
	calls, claims atomic.Int64
}

func (r *renewing) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	r.calls.Add(1)
	r.claims.Add(int64(len(claims)))
	return r.Backend.Renew(ctx, claims)
}

// Ten thousand locks held on five nodes, or a thousand with the race detector, take next to no
// goroutines, and are renewed in batches. One story, from the first lock to the last release.
func TestTenThousandHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const locks, hands = manyLocks, 100
		var nodes []*renewing
		var list []driver.Backend
		for range 5 {
			n := &renewing{Backend: memhold.New()}
			nodes, list = append(nodes, n), append(list, n)
		}
		before := runtime.NumGoroutine()
		q, err := quorum.New(list, quorum.WithGuard(0))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		l, err := holdfast.New(q)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		held := make([]*holdfast.Lock, locks)
		each := func(f func(i int)) {
			var done sync.WaitGroup
			for hand := range hands {
				done.Go(func() {
					for i := hand; i < locks; i += hands {
						f(i)
					}
				})
			}
			done.Wait()
		}
		each(func(i int) {
			lock, err := l.Acquire(context.Background(), fmt.Sprint("k", i))
			if err != nil {
				t.Errorf("Acquire of lock %d: %v", i, err)
				return
			}
			held[i] = lock
		})
		if t.Failed() {
			return
		}
		for _, n := range nodes {
			n.calls.Store(0) // those of second rounds
			n.claims.Store(0)
		}
		time.Sleep(5 * time.Minute) // ten leases
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 20+5*len(nodes) {
			t.Errorf("%d goroutines for %d held locks; want at most %d", n, locks, 20+5*len(nodes))
		}
		for i, n := range nodes {
			calls, claims := n.calls.Load(), n.claims.Load()
			if claims < 10*locks || calls*50 > claims {
				t.Errorf(
					"node %d: %d calls for %d renewals; want at least %d renewals, and 50 in a call",
					i, calls, claims, 10*locks)
			}
		}
		each(func(i int) {
			if err := held[i].Release(context.Background()); err != nil {
				t.Errorf("Release of lock %d: %v", i, err)
			}
		})
		if keys, claims := q.Remembered(); keys > 0 || claims > 0 {
			time.Sleep(time.Second)
			if keys, claims = q.Remembered(); keys > 0 || claims > 0 {
				t.Errorf("%d keys and %d claims are remembered after the release of all; want none",
					keys, claims)
			}
		}
	})
}
