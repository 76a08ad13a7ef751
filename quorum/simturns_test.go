package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/quorum"
)

// Processes take turns with one key, on nodes and clients whose clocks show unlike times, of which
// some nodes do not tell theirs. Nobody may overtake another by more than the nodes' clocks differ,
// whatever the clients' clocks show, and nobody may wait for much longer than that.

// turnsPlan is a history of that, drawn from its seed.
type turnsPlan struct {
	seed    uint64
	nodes   int
	offsets []time.Duration // of the nodes' clocks
	silent  []bool          // nodes that do not tell theirs
	skews   []time.Duration // of the clients' clocks, one for each process
	fresh   []bool          // processes that make a new client for each turn
	lone    []int           // a node that the process does not reach; -1: none
	hold    time.Duration
	idle    time.Duration
	steps   bool // a minority's clocks are set now and then
	freezes bool // a minority hangs now and then
}

func (p *turnsPlan) String() string {
	return fmt.Sprintf("seed %d: %d nodes, offsets %v, silent %v, skews %v, fresh %v, cut off %v, "+
		"hold %v, idle %v, steps %v, freezes %v", p.seed, p.nodes, p.offsets, p.silent, p.skews,
		p.fresh, p.lone, p.hold, p.idle, p.steps, p.freezes)
}

func newTurnsPlan(seed uint64) *turnsPlan {
	r := rand.New(rand.NewPCG(seed, 21))
	p := &turnsPlan{seed: seed, nodes: []int{3, 3, 5}[r.IntN(3)]}
	offsets := []time.Duration{0, 0, 0, time.Millisecond, 2 * time.Second, -2 * time.Second,
		30 * time.Second, -30 * time.Second, 30 * time.Minute, -30 * time.Minute}
	minority := (p.nodes - 1) / 2
	bad := 0
	if r.IntN(3) > 0 {
		bad = minority
	}
	if r.IntN(6) == 0 {
		bad = p.nodes
	}
	for i := range p.nodes {
		off := time.Duration(0)
		if i < bad {
			off = offsets[r.IntN(len(offsets))]
		}
		p.offsets = append(p.offsets, off)
	}
	r.Shuffle(p.nodes, func(i, j int) { p.offsets[i], p.offsets[j] = p.offsets[j], p.offsets[i] })
	few := r.IntN(3) == 0
	for i := range p.nodes {
		p.silent = append(p.silent, few && i < 1)
	}
	r.Shuffle(p.nodes, func(i, j int) { p.silent[i], p.silent[j] = p.silent[j], p.silent[i] })
	skews := []time.Duration{-30 * time.Second, -2 * time.Second, 0, 2 * time.Second,
		30 * time.Second}
	fresh, cut := r.Float64(), r.IntN(3) == 0
	for i := range 2 + r.IntN(5) {
		p.skews = append(p.skews, skews[i%len(skews)])
		p.fresh = append(p.fresh, r.Float64() < fresh)
		lone := -1
		if cut && r.IntN(2) == 0 {
			lone = r.IntN(p.nodes)
		}
		p.lone = append(p.lone, lone)
	}
	p.hold = []time.Duration{time.Millisecond, 20 * time.Millisecond,
		300 * time.Millisecond}[r.IntN(3)]
	p.idle = []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second}[r.IntN(3)]
	p.steps, p.freezes = r.IntN(4) == 0, r.IntN(4) == 0 && !cut
	return p
}

// spread returns by how much a waiter may overtake another: by as much as the clocks of nodes
// differ that clients may have gone by, and a moment more. A node that hangs places a claim without
// a ticket when it goes on, and takes waiters for gone. A client that does not reach a node has no
// place there.
func (p *turnsPlan) spread() time.Duration {
	spread := slices.Max(p.offsets) - slices.Min(p.offsets) + 300*time.Millisecond
	if p.steps {
		spread += 60 * time.Second
	}
	if p.freezes {
		spread += 5 * time.Second
	}
	if slices.Max(p.lone) >= 0 {
		spread += 2 * time.Second
	}
	return spread
}

// turnsRun is a run of a plan.
type turnsRun struct {
	*turnsPlan
	mu       sync.Mutex
	waiting  map[int]time.Time
	turns    []int
	longest  time.Duration
	overtook time.Duration
	bad      []string
}

func (h *turnsRun) granted(i int, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := h.waiting[i]
	delete(h.waiting, i)
	h.turns[i]++
	h.longest = max(h.longest, now.Sub(mine))
	for k, since := range h.waiting {
		if by := mine.Sub(since); by > 0 {
			h.overtook = max(h.overtook, by)
			if by > h.spread() {
				h.bad = append(h.bad, fmt.Sprintf("process %d overtakes %d, which came %v before",
					i, k, by))
			}
		}
	}
}

// run runs the history in a bubble: one list of steps.
func (p *turnsPlan) run(t *testing.T) *turnsRun {
	h := &turnsRun{turnsPlan: p, waiting: make(map[int]time.Time),
		turns: make([]int, len(p.skews))}
	bubble(t, func(t *testing.T) {
		c := &cluster{t: t, network: newNetwork(p.seed, p.nodes, weather{delay: roundTrip / 4},
			time.Second)}
		c.last = p.seed%2 == 0
		r := rand.New(rand.NewPCG(p.seed, 22))
		c.do(func() {
			for i, s := range c.servers {
				s.setClock(31*time.Minute+p.offsets[i], 1)
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var done sync.WaitGroup
		seeds := make([]uint64, len(p.skews))
		for i := range seeds {
			seeds[i] = r.Uint64()
		}
		for i, skew := range p.skews {
			r := rand.New(rand.NewPCG(seeds[i], 1))
			open := func() (*holdfast.Locker, *quorum.Quorum) {
				conns := c.dial()
				nodes := backends(conns)
				for k := range nodes {
					if p.silent[k] {
						nodes[k] = clockless{conns[k]}
					}
					if p.lone[i] == k {
						c.do(func() { conns[k].cut = true })
					}
				}
				q, err := quorum.New(nodes, quorum.WithGuard(0), quorum.WithClock(func() uint64 {
					return uint64(time.Now().Add(skew).UnixMicro())
				}))
				if err != nil {
					t.Fatal(err)
				}
				l, err := holdfast.New(q, holdfast.WithPrefix(""),
					holdfast.WithTTL(10*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				return l, q
			}
			done.Go(func() {
				var l *holdfast.Locker
				var q *quorum.Quorum
				for ctx.Err() == nil {
					time.Sleep(time.Duration(r.ExpFloat64() * float64(p.idle)))
					if l == nil {
						l, q = open()
					}
					h.mu.Lock()
					h.waiting[i] = time.Now()
					h.mu.Unlock()
					lock, err := l.Acquire(context.Background(), "k")
					if err != nil {
						t.Errorf("%v: Acquire: %v", p, err)
						break
					}
					h.granted(i, time.Now())
					time.Sleep(time.Duration(r.ExpFloat64() * float64(p.hold)))
					if err := lock.Release(context.Background()); err != nil && !p.freezes &&
						!p.steps {
						t.Errorf("%v: Release: %v", p, err)
					}
					if p.fresh[i] {
						l.Close()
						q.Close()
						l = nil
					}
				}
				if l != nil {
					l.Close()
					q.Close()
				}
			})
		}
		minority := (p.nodes - 1) / 2
		for ctx.Err() == nil && (p.steps || p.freezes) {
			time.Sleep(time.Duration(r.ExpFloat64() * float64(2*time.Second)))
			which := r.Perm(p.nodes)[:minority]
			c.do(func() {
				for _, k := range which {
					s := c.servers[k]
					if p.steps {
						right := time.Since(c.start) + time.Hour + 31*time.Minute + p.offsets[k]
						off := time.Duration((r.Float64()*2 - 1) * float64(30*time.Second))
						s.setClock(right+off-s.now(), 1)
					}
					if p.freezes {
						s.frozen = true
					}
				}
			})
			if p.freezes {
				time.Sleep(time.Duration(r.ExpFloat64() * float64(time.Second)))
				c.do(func() {
					for _, s := range c.servers {
						s.thaw()
					}
				})
			}
		}
		done.Wait()
	})
	return h
}

// TestTurnsOnUnlikeClocks runs HOLDFAST_TURNS such histories, from HOLDFAST_SEED on.
func TestTurnsOnUnlikeClocks(t *testing.T) {
	first := number(t, "HOLDFAST_SEED", 11)
	n := number(t, "HOLDFAST_TURNS", min(8, defaultHistories/100)) // 3 with the race detector
	for seed := first; seed < first+n; seed++ {
		p := newTurnsPlan(seed)
		h := p.run(t)
		if len(h.bad) > 0 {
			t.Errorf("%v: %d times, as when %s; turns %v", p, len(h.bad), h.bad[0], h.turns)
		}
		most := p.spread() + time.Duration(len(p.skews))*(8*p.hold+time.Second)
		if h.longest > most {
			t.Errorf("%v: one waited for %v, which is longer than %v; turns %v", p, h.longest, most,
				h.turns)
		}
		if *verbose {
			t.Logf("%v: turns %v, longest wait %v, overtaken by %v", p, h.turns, h.longest,
				h.overtook)
		}
	}
}
