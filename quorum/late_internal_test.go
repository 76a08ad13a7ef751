package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// readLate is a node whose answers to acquisitions are read after the node timeout.
type readLate struct{ *memhold.Backend }

func (b *readLate) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	result, err := b.Backend.Acquire(ctx, c)
	time.Sleep(DefaultNodeTimeout + 10*time.Millisecond)
	return result, err
}

// A claim that was given back, because too many nodes had not answered in time, is not held, even
// if their grants are there before the caller looks: the process may be stopped in between.
//
// Fails if the code is broken like this: conclude without r.cleaned.
func TestGrantsAfterTheClaimWasGivenBackAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Backend
		for range 3 {
			nodes = append(nodes, &readLate{Backend: memhold.New()})
		}
		q, err := New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		claim := driver.Claim{Key: "k", Owner: "o", TTL: time.Minute, Token: 1, Block: 1}
		r := q.begin(node.Acquiring, claim, clock.Now())
		time.Sleep(DefaultNodeTimeout)
		r.mu.Lock()
		r.giveUp() // as the caller's wait does when the time is over
		r.mu.Unlock()
		time.Sleep(DefaultNodeTimeout)
		synctest.Wait()
		result, err := q.conclude(t.Context(), r)
		if !errors.Is(err, errLate) {
			t.Errorf("conclude = %v, %v; want that it was too late", result.State, err)
		}
		synctest.Wait()
		for i, n := range nodes {
			e, err := n.(driver.Inspector).Inspect(t.Context(), "k")
			if err != nil || e.Holder.Owner != "" {
				t.Errorf("node %d has %+v, %v; want nobody", i, e.Holder, err)
			}
		}
	})
}
