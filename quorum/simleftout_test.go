package quorum_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// leftOut is a random history of one claim. It is asked for several times with one owner value. The
// last nodes may grant an early attempt, and then hang, are slow, crash or are cut off. So the
// attempt that gets the key may leave them out, and they may be back when the key is released. The
// claim may share its key, from the first or from a Downgrade on.
type leftOut struct {
	*cluster
	*rand.Rand
	a     *client
	claim driver.Claim
	other driver.Claim // of another key
	out   []int        // the nodes with faults
	rest  []int
	left  data                // what the nodes with faults have after a crash
	grab  func(keys []string) // may take the key on these nodes when it is free; or nil
}

func newLeftOut(t *testing.T, seed uint64) *leftOut {
	r := rand.New(rand.NewPCG(seed, 0))
	n := 3 + 2*r.IntN(2)
	h := &leftOut{cluster: newCluster(t, n), Rand: r}
	h.a = h.client(quorum.WithRandom(func() float64 { return 0.9 }))
	h.claim, h.other = h.a.claim(), h.a.claim()
	if h.claim.Queue = r.IntN(3) > 0; r.IntN(2) == 0 {
		h.presence = 0
	}
	h.claim.Shared = r.IntN(3) == 0
	h.left = []data{kept, kept, forgotten}[r.IntN(3)]
	if r.IntN(3) == 0 {
		h.grab = func([]string) {
			for _, i := range h.out {
				if k := h.servers[i].keys["k"]; k != nil && k.owner == "" {
					h.servers[i].give("k", "another", time.Second)
				}
			}
		}
	}
	in := n - 1 - r.IntN(n/2)
	for i := range n {
		if i < in {
			h.rest = append(h.rest, i)
		} else {
			h.out = append(h.out, i)
		}
	}
	return h
}

// wait lets up to so many milliseconds pass.
func (h *leftOut) wait(most int) {
	time.Sleep(time.Duration(h.Int64N(int64(most)*int64(time.Millisecond) + 1)))
}

// oneOf reports true once in n times.
func (h *leftOut) oneOf(n int) bool { return h.IntN(n) == 0 }

// strike has a fault come to the nodes that have one, now or when requests have taken effect.
func (h *leftOut) strike() {
	fault, slow := h.IntN(5), time.Duration(10+h.IntN(60))*time.Millisecond
	after := h.IntN(3 * len(h.servers))
	h.do(func() {
		h.applied = func(keys []string) {
			if after--; after != 0 || keys[0] != "k" {
				return
			}
			for _, i := range h.out {
				switch s := h.servers[i]; fault {
				case 0:
					s.slow = slow
				case 1:
					s.frozen = true
				case 2, 3:
					s.crash(fault == 2)
				case 4:
					h.a.conns[i].cut = true
				}
			}
		}
	})
}

// heal ends all faults.
func (h *leftOut) heal() {
	h.do(func() {
		h.applied = h.grab
		for _, i := range h.out {
			if h.servers[i].down {
				h.servers[i].restart(h.left)
			}
			h.a.conns[i].cut = false
			h.servers[i].thaw()
		}
		for _, s := range h.servers {
			s.slow = 0
		}
	})
}

// lose has nodes lose a key, each with probability 1 in n.
func (h *leftOut) lose(key string, n int, nodes ...int) {
	h.do(func() {
		for _, i := range nodes {
			if h.oneOf(n) {
				delete(h.servers[i].keys, key)
			}
		}
	})
}

// acquire asks for the claim up to so many times, and reports whether it is held.
func (h *leftOut) acquire(times int) bool {
	for range times {
		r, err := h.a.Acquire(context.Background(), h.claim)
		if err == nil && r.State == driver.Held {
			return true
		}
		h.wait(20)
	}
	return false
}

// run returns what the release of a held claim has said, and how many nodes held the claim until
// then.
func (h *leftOut) run() (said driver.State, held int) {
	h.other.Key, h.other.TTL = "x", 100*time.Millisecond // its calls fail after 10 ms
	h.a.hold(h.other)
	h.take("k", h.rest...)
	if h.oneOf(2) {
		h.take("k", h.out...)
	}
	h.strike()
	h.acquire(1 + h.IntN(2))
	h.lose("k", 1, h.rest...)
	if h.oneOf(4) {
		h.lose("k", 1, h.out...)
	}
	for range h.IntN(4) { // so that nodes count as down
		_, _ = h.a.Renew(context.Background(), []driver.Claim{h.other})
		h.wait(20)
	}
	if h.oneOf(2) {
		h.heal()
	}
	if !h.acquire(6) {
		h.release()
		return driver.Unknown, 0
	}
	if !h.oneOf(3) {
		h.wait(10)
		h.heal()
	}
	if h.oneOf(2) { // so that nodes are needed, and may turn out to be up
		h.lose("x", 1, h.rest[0])
		_, _ = h.a.Renew(context.Background(), []driver.Claim{h.other})
	}
	if h.oneOf(6) {
		h.claim.Shared = h.claim.Shared || h.oneOf(2)
		_, _ = h.a.Renew(context.Background(), []driver.Claim{h.claim})
	}
	h.lose("k", 3, h.rest...)
	if h.oneOf(3) {
		h.do(func() { h.servers[h.rest[0]].slow = time.Duration(h.IntN(70)) * time.Millisecond })
	}
	h.wait([]int{20, 90, 300}[h.IntN(3)])
	if h.oneOf(2) {
		time.AfterFunc(time.Duration(h.IntN(60))*time.Millisecond, h.heal)
	}
	return h.release()
}

func (h *leftOut) release() (said driver.State, held int) {
	start := time.Now()
	r, err := h.a.Release(context.Background(), h.claim)
	if err == nil {
		said = r.State
	}
	for again := err; again != nil; {
		time.Sleep(40 * time.Millisecond)
		h.heal()
		_, again = h.a.Release(context.Background(), h.claim)
	}
	if said != driver.Held { // a node that loses it later held it until then
		h.heal()
		rest()
	}
	servers := make(map[int]bool)
	h.do(func() {
		for _, f := range h.freed[h.claim.Owner] {
			if !f.at.Before(start) {
				servers[f.server] = true
			}
		}
	})
	return said, len(servers)
}

// A release tells the truth of a claim that was asked for several times, whatever nodes still owe
// of its earlier attempts. It may say that it does not know. HOLDFAST_SEED is the first history's
// seed, HOLDFAST_HISTORIES how many there are.
func TestReleaseOfAClaimThatNodesLeftOut(t *testing.T) {
	said := make(map[driver.State]int)
	first := number(t, "HOLDFAST_SEED", uint64(time.Now().UnixNano()))
	histories := number(t, "HOLDFAST_HISTORIES", defaultHistories)
	t.Logf("seeds from %d: HOLDFAST_SEED=%d repeats", first, first)
	for seed := first; seed < first+histories; seed++ {
		bubble(t, func(t *testing.T) {
			h := newLeftOut(t, seed)
			state, held := h.run()
			said[state]++
			need := len(h.servers)/2 + 1
			if state != driver.Unknown && (state == driver.Held) != (held >= need) {
				t.Errorf("seed %d: Release = %v; %d of %d nodes held the claim until then", seed,
					state, held, len(h.servers))
			}
			h.heal()
			_, _ = h.a.Release(t.Context(), h.other)
			time.Sleep(time.Hour)
			h.clean("k")
			if n := h.a.Doubts(); n > 0 {
				t.Errorf("seed %d: %d claims count as doubtful for ever", seed, n)
			}
		})
	}
	t.Log(said)
	if least := int(histories / 10); said[driver.Held] < least || said[driver.Lost] < least {
		t.Error("want more of held and lost")
	}
}
