package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// An attempt that cannot succeed any more still waits for the answers that say why, even if it has
// not been sent to some nodes yet: with one node of three down, a key that is held must not be
// reported as unavailable.
func TestHeldKeyIsToldWithANodeDownAndOneBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mine, theirs []driver.Backend
		var faults []memhold.Faults
		for range 3 {
			memory := memhold.New()
			client := memory.Client()
			defer memory.Close()
			defer client.Close()
			mine, theirs = append(mine, client), append(theirs, memory)
			faults = append(faults, client.Faults())
		}
		clients := make([]*quorum.Quorum, 2)
		for i, backends := range [][]driver.Backend{mine, theirs} {
			q, err := quorum.New(backends, quorum.WithGuard(0))
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			clients[i] = q
		}
		claims := make([]driver.Claim, 3)
		for i := range claims {
			claims[i] = driver.Claim{Key: "k", Owner: fmt.Sprint("owner", i),
				TTL: 10 * time.Second, Token: driver.Token(time.Now().UnixMicro())}
		}
		ctx := context.Background()
		if r, err := clients[1].Acquire(ctx, claims[0]); err != nil || r.State != driver.Held {
			t.Fatal(r, err)
		}
		rest()
		faults[0].Freeze()
		go clients[0].Acquire(ctx, claims[1]) // what follows waits for it at the first node
		time.Sleep(time.Millisecond)
		remove := faults[1].Inject(memhold.Fault{Err: driver.ErrUnavailable})
		time.AfterFunc(10*time.Millisecond, faults[0].Thaw)
		r, err := clients[0].Acquire(ctx, claims[2])
		if err != nil || r.State != driver.Busy {
			t.Errorf("Acquire = %v, %v; want busy", r.State, err)
		}
		remove()
		rest()
		clients[1].Release(ctx, claims[0])
	})
}
