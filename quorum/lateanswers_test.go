package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// brink is a node whose answers to acquisitions are read at about the moment at which they are
// given up. It notes which claims were released.
type brink struct {
	*memhold.Backend
	wait     time.Duration
	released sync.Map // by owner value
}

func (b *brink) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	result, err := b.Backend.Acquire(ctx, c)
	time.Sleep(b.wait + rand.N(b.wait/4))
	return result, err
}

func (b *brink) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	b.released.Store(c.Owner, true)
	return b.Backend.Release(ctx, c)
}

// Whatever the order in which answers, time-outs and the caller come at one moment: what is held
// was not given back. This is in real time, as in fake time few goroutines run at one moment.
func TestWhatIsHeldWasNotGivenBack(t *testing.T) {
	const timeout = 2 * time.Millisecond
	var brinks []*brink
	var nodes []driver.Backend
	for range 3 {
		b := &brink{Backend: memhold.New(), wait: timeout}
		brinks, nodes = append(brinks, b), append(nodes, b)
	}
	q, err := quorum.New(nodes, quorum.WithNodeTimeout(timeout))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	held, failed := 0, 0
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for k := range 200 {
				c := driver.Claim{Key: fmt.Sprint(i, "/", k), Owner: driver.NewOwner("test"),
					TTL: time.Minute, Token: 1, Block: 1}
				result, err := q.Acquire(t.Context(), c)
				mu.Lock()
				if result.State == driver.Held {
					held++
				} else {
					failed++
				}
				mu.Unlock()
				if result.State != driver.Held {
					continue
				}
				time.Sleep(timeout) // a release that was begun before would be sent by then
				for n, b := range brinks {
					if _, gone := b.released.Load(c.Owner); gone {
						t.Errorf("%s is held (%v), and node %d was told to release it", c.Key, err, n)
					}
				}
			}
		})
	}
	all.Wait()
	if held == 0 || failed == 0 {
		t.Errorf("%d were held, and %d failed; want both", held, failed)
	}
}
