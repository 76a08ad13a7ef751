package quorum_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// R24: while a minority hangs, all other nodes are needed, so the parts that several waiters got
// have to come together at one waiter. Notices see to that within some node timeouts: nobody waits
// until the kernel asks again by itself, after a second.
func TestR24_TurnsWithMinorityHung(t *testing.T) {
	const (
		turns   = 50
		longest = 500 * time.Millisecond // ten node timeouts
	)
	for seed := range uint64(12) {
		for _, contest := range []struct{ clients, workers, cohort int }{{2, 1, 1}, {3, 1, 1},
			{3, 3, 2}} {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 5)
				c.seed, c.presence = seed, 3*time.Second
				c.weather.delay = []time.Duration{100 * time.Microsecond, time.Millisecond,
					2 * time.Millisecond}[seed%3]
				// What the nodes have granted before differs, so their tokens do.
				rest := driver.Token(time.Now().UnixMicro())
				c.fences(rest+2e4, rest+1e4, rest, rest+3e4, rest+4e4)
				c.freeze(1, 3)
				var (
					mu   sync.Mutex
					all  sync.WaitGroup
					last = time.Now()
				)
				for range contest.clients {
					l, err := holdfast.New(c.client().Quorum, holdfast.WithTTL(10*time.Second),
						holdfast.WithCohort(contest.cohort, time.Millisecond))
					if err != nil {
						t.Fatal(err)
					}
					for range contest.workers {
						all.Go(func() {
							for range turns {
								lock, err := l.Acquire(t.Context(), "k")
								if err != nil {
									t.Errorf("seed %d: %v", seed, err)
									return
								}
								mu.Lock()
								if took := time.Since(last); took > longest {
									t.Errorf("seed %d: %+v: %v without a turn; want at most %v",
										seed, contest, took, longest)
								}
								last = time.Now()
								mu.Unlock()
								if err := lock.Release(t.Context()); err != nil {
									t.Errorf("seed %d: %v", seed, err)
								}
							}
						})
					}
					t.Cleanup(func() { l.Close() })
				}
				all.Wait()
				c.thaw(1, 3)
			})
		}
	}
}

// R24: if waiters are present at the nodes for less time than the quorum needs for an acquisition,
// everybody still gets the key, though not in turns.
func TestR24_ShortPresence(t *testing.T) {
	for _, presence := range []time.Duration{time.Millisecond, 3 * time.Millisecond,
		10 * time.Millisecond, 30 * time.Millisecond} {
		for _, n := range []int{3, 5} {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, n)
				c.presence = presence
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var all sync.WaitGroup
				for range 6 {
					l, err := holdfast.New(c.client().Quorum, holdfast.WithTTL(10*time.Second))
					if err != nil {
						t.Fatal(err)
					}
					defer l.Close()
					all.Go(func() {
						for turn := range 20 {
							lock, err := l.Acquire(ctx, "k")
							if err != nil {
								t.Errorf("%d nodes, presence %v, turn %d: %v", n, presence,
									turn, err)
								return
							}
							time.Sleep(time.Millisecond)
							lock.Release(ctx)
						}
					})
				}
				start := time.Now()
				all.Wait()
				t.Logf("%d nodes, presence %v: %v", n, presence, time.Since(start))
			})
		}
	}
}
