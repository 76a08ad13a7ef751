package redismodel_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
	"github.com/holdfast-go/holdfast/simulate/redismodel"
)

// runRace runs a history of a few milliseconds: two clients of three servers, whose fences are not
// equal, want the key at almost the same moment, with tokens that are close to each other. The key
// may be evicted between any two commands of a pipeline. No two of them may complete with one
// token. It returns how many did complete.
func runRace(t *testing.T, seed uint64) (completed int) {
	synctest.Test(t, func(t *testing.T) {
		h := &history{T: t, seed: seed, evicts: true}
		set, between := h.chances(0), h.chances(99)
		for range 3 {
			var s *redismodel.Server
			s = redismodel.New(redismodel.Options{Between: func(*redismodel.Client,
				protocol.Command) {
				if between.oneIn(3) {
					s.Evict(historyKey)
				}
			}})
			s.Do("ZADD", protocol.KeysOf(historyKey).Fence, fmt.Sprint(1+set.upTo(3)), "t")
			h.servers = append(h.servers, s)
		}
		begin := time.Now().Add(time.Second)
		var everybody sync.WaitGroup
		for i := range 2 {
			random := h.chances(uint64(1 + i))
			b := h.openOver(i, func(random *chances) redismodel.Link {
				some := func() time.Duration { return random.some(3 * time.Millisecond) }
				return redismodel.Link{Request: some, Gap: some}
			})
			defer b.Close()
			everybody.Go(func() {
				claim := driver.Claim{Key: historyKey, Owner: fmt.Sprintf("client %d's", i),
					TTL: historyTTL, Token: driver.Token(1 + random.upTo(4))}
				h.settle(b)
				time.Sleep(time.Until(begin) + random.some(3*time.Millisecond))
				began := time.Now()
				if r, err := b.Acquire(context.Background(), claim); err == nil &&
					r.State == driver.Held {
					h.granted(claim.Owner, r.Token, began)
				}
			})
		}
		everybody.Wait()
		completed = len(h.grants)
	})
	return completed
}

// settle makes a client connect to all servers.
func (h *history) settle(b driver.Backend) {
	if _, err := b.(driver.Inspector).Inspect(context.Background(), historyKey); err != nil {
		h.fail("%v", err)
	}
}
