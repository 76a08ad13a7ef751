package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum"
)

// Servers lose their data, one after the other and sometimes too soon, while many readers and a few
// writers come and go, and clients lose sight of servers. From a seed, in fake time. It is checked
// that tokens rise, as far as the documentation promises it, and that locks are not lost.

// lossPlan is what a history of losses does, drawn from its seed.
type lossPlan struct {
	seed     uint64
	nodes    int
	clients  int
	keys     int
	readers  int // that come at once, at most
	ttl      time.Duration
	guard    time.Duration
	pace     time.Duration // mean time between two things that happen
	steps    int
	delay    time.Duration
	presence time.Duration
	flushes  bool // servers lose their data in the same run, too
}

func (p *lossPlan) String() string {
	return fmt.Sprintf("seed %d: %d nodes, %d clients, %d keys, %d readers, TTL %v, guard %v, "+
		"pace %v, flushes %v",
		p.seed, p.nodes, p.clients, p.keys, p.readers, p.ttl, p.guard, p.pace, p.flushes)
}

func newLossPlan(seed uint64) *lossPlan {
	r := rand.New(rand.NewPCG(seed, 41))
	p := &lossPlan{
		seed:     seed,
		nodes:    []int{3, 3, 5}[r.IntN(3)],
		clients:  1 + r.IntN(3),
		keys:     []int{1, 2, 12}[r.IntN(3)],
		readers:  []int{1, 3, 10, 40}[r.IntN(4)],
		ttl:      []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second}[r.IntN(3)],
		pace:     []time.Duration{2, 20, 100, 400}[r.IntN(4)] * time.Millisecond,
		steps:    10 + r.IntN(30),
		delay:    []time.Duration{50, 500, 2000}[r.IntN(3)] * time.Microsecond,
		presence: []time.Duration{0, 0, 300 * time.Millisecond}[r.IntN(3)],
		flushes:  r.IntN(2) == 0,
	}
	if r.IntN(3) == 0 {
		p.guard = p.ttl + time.Second
	}
	return p
}

// lossHistory is a run of a plan.
type lossHistory struct {
	*lossPlan
	t       testing.TB
	net     *network
	check   *lossCheck
	r       *rand.Rand
	clients []*lossClient
	made    int
	coming  sync.WaitGroup // acquisitions under way
	calm    bool
	since   time.Time // when it became calm
	traps   []*lossTrap
	last    driver.Token // of visitors
}

// lossTrap is what happens when a client heals a node or asks it for tokens, for the nth time.
type lossTrap struct {
	after  int
	spring func(c *lossClient, server int)
}

// lossClient is a Quorum, its connections, and the renewals of its claims.
type lossClient struct {
	*quorum.Quorum
	h     *lossHistory
	name  string
	conns []*conn
	skew  int64        // of its clock, in microseconds
	ahead driver.Token // what it adds to that
	r     *rand.Rand
	stop  chan struct{}
	done  chan struct{}
	grips []*grip        // guarded by the network's mutex
	late  sync.WaitGroup // releases of claims that are over
	count int
}

// spied is a connection that tells when a node is healed or asked for tokens.
type spied struct {
	*conn
	client *lossClient
}

func (s spied) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if claim.Ticket == 1 {
		s.client.h.strike(s.client, s.server.index)
	}
	r, err := s.conn.Acquire(ctx, claim)
	if claim.Ticket == 1 {
		s.client.h.strike(s.client, s.server.index)
	}
	return r, err
}

func (s spied) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	draws := claims[0].Block > 0
	if draws {
		s.client.h.strike(s.client, s.server.index)
	}
	r, err := s.conn.Renew(ctx, claims)
	if draws {
		s.client.h.strike(s.client, s.server.index)
	}
	return r, err
}

// strike springs the traps that are due.
func (h *lossHistory) strike(c *lossClient, server int) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.traps = slices.DeleteFunc(h.traps, func(t *lossTrap) bool {
		t.after--
		if t.after < 0 && !h.calm {
			t.spring(c, server)
		}
		return t.after < 0
	})
}

// lay lays a trap: a server loses its data, or does not answer any more.
func (h *lossHistory) lay() {
	server, kind, flush := h.r.IntN(h.nodes), h.r.IntN(4), h.r.IntN(2) == 0
	same, long := h.r.IntN(2) == 0, h.long()
	wait := time.Duration(h.r.IntN(2)) * time.Duration(h.r.Float64()*float64(4*h.delay))
	h.traps = append(h.traps, &lossTrap{h.r.IntN(2 * h.nodes), func(c *lossClient, here int) {
		if same {
			server = here
		}
		act := func() {
			switch {
			case h.calm:
			case kind == 0:
				h.loseLocked(server, flush)
			case kind == 1:
				h.freeze(server, long)
			default:
				c.cut(server, long)
			}
		}
		if wait == 0 {
			act()
			return
		}
		time.AfterFunc(wait, func() { h.do(act) })
	}})
}

func (h *lossHistory) long() time.Duration {
	return []time.Duration{20 * time.Millisecond, h.ttl / 3, h.ttl, 2 * h.ttl}[h.r.IntN(4)]
}

// freeze and cut have a server not answer for a while. Called with the network's mutex held.
func (h *lossHistory) freeze(server int, long time.Duration) {
	h.net.servers[server].frozen = true
	h.check.note("%d is frozen for %v", server, long)
	time.AfterFunc(long, func() { h.do(h.net.servers[server].thaw) })
}

func (c *lossClient) cut(server int, long time.Duration) {
	c.conns[server].cut = true
	c.h.check.note("%s is cut off %d for %v", c.name, server, long)
	time.AfterFunc(long, func() { c.h.do(func() { c.conns[server].cut = false }) })
}

// plot has a token known to few servers only, and those lost or silent one after the other.
func (h *lossHistory) plot() {
	order := h.r.Perm(h.nodes)
	need := h.check.need
	visitor := h.clients[h.r.IntN(len(h.clients))]
	for _, i := range order[need:] {
		h.do(func() { visitor.cut(i, 40*time.Millisecond) })
	}
	first := visitor.count
	for k := range h.keys {
		if h.r.IntN(4) > 0 {
			h.last += 1e9
			visitor.ahead = h.last
			visitor.come(fmt.Sprintf("k%d", k), true, false, false)
			visitor.ahead = 0
		}
	}
	time.Sleep(20 * time.Millisecond)
	if h.r.IntN(5) > 0 {
		visitor.leave(func(g *grip) bool { return g.number > first })
	}
	time.Sleep(30 * time.Millisecond)
	if long := h.long(); h.r.IntN(2) == 0 { // those that know it still
		h.do(func() {
			h.traps = append(h.traps, &lossTrap{h.r.IntN(2), func(*lossClient, int) {
				for _, i := range order[1:need] {
					h.freeze(i, long)
				}
			}})
		})
	}
	for range h.r.IntN(3) {
		h.do(h.lay)
	}
	if h.guard == 0 && h.r.IntN(3) == 0 {
		h.evictSome(order[0], order[h.r.IntN(h.nodes)])
	} else {
		h.do(func() { h.loseLocked(order[0], h.r.IntN(2) == 0) })
	}
	for range h.r.IntN(3) {
		time.Sleep(time.Duration(h.r.ExpFloat64() * float64(h.ttl/3)))
		h.do(func() {
			switch c := h.clients[h.r.IntN(len(h.clients))]; h.r.IntN(4) {
			case 0:
				c.cut(h.r.IntN(h.nodes), h.long())
			case 1:
				h.freeze(h.r.IntN(h.nodes), h.long())
			case 2:
				h.loseLocked(order[need+h.r.IntN(h.nodes-need)], h.r.IntN(2) == 0)
			}
		})
	}
	if h.r.IntN(2) == 0 {
		time.Sleep(time.Duration(h.r.ExpFloat64() * float64(h.ttl)))
	}
	switch h.r.IntN(4) {
	case 0, 1:
		h.rest()
	case 2:
		h.roll()
	}
}

func (h *lossHistory) evictSome(servers ...int) {
	h.do(func() {
		for k := range h.keys {
			if h.r.IntN(3) > 0 {
				h.evict(servers[h.r.IntN(len(servers))], fmt.Sprintf("k%d", k))
			}
		}
	})
}

// loseLocked has a server lose its data.
func (h *lossHistory) loseLocked(server int, flush bool) {
	for key := range h.check.tokens {
		h.check.losing(key, server)
	}
	h.check.note("server %d loses its data, flushed %v", server, flush && h.flushes)
	if s := h.net.servers[server]; flush && h.flushes {
		s.flush()
	} else {
		s.restart(forgotten)
	}
	for key := range h.check.tokens {
		h.check.weigh(key)
	}
}

// evict has a server lose what it knows of a key.
func (h *lossHistory) evict(server int, key string) {
	h.check.losing(key, server)
	h.check.note("server %d loses %s", server, key)
	s := h.net.servers[server]
	delete(s.keys, key)
	delete(s.fences, key)
	h.check.weigh(key)
}

func (h *lossHistory) newClient() *lossClient {
	h.made++
	c := &lossClient{h: h, name: fmt.Sprintf("c%d", h.made), conns: h.net.dial(),
		skew: []int64{-1e15, -1e9, 0, 0, 1e9}[h.r.IntN(5)],
		r:    rand.New(rand.NewPCG(h.seed, uint64(1000+h.made))),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	var nodes []driver.Backend
	for _, conn := range c.conns {
		nodes = append(nodes, spied{conn, c})
	}
	chance := &dice{r: rand.New(rand.NewPCG(h.seed, uint64(2000+h.made)))}
	q, err := quorum.New(nodes, quorum.WithGuard(h.guard), quorum.WithRandom(chance.throw))
	if err != nil {
		h.t.Fatal(err)
	}
	c.Quorum = q
	go c.run()
	return c
}

func (c *lossClient) clock() driver.Token {
	return driver.Token(max(1, time.Since(c.h.net.start).Microseconds()+c.skew))
}

// come asks for a key, and keeps it if it gets it.
func (c *lossClient) come(key string, shared bool, queue, block bool) {
	h := c.h
	c.count++
	g := &grip{client: c, shared: shared, claim: driver.Claim{Key: key, TTL: h.ttl, Shared: shared,
		Owner: fmt.Sprintf("%s.%d", c.name, c.count), Queue: queue, Token: c.clock() + c.ahead}}
	g.number = c.count
	if block {
		g.claim.Block = 2
	}
	h.coming.Add(1)
	go func() {
		defer h.coming.Done()
		for range 10 {
			h.net.mu.Lock()
			above, begun := h.check.above(key), time.Now()
			h.net.mu.Unlock()
			start := clock.Now()
			r, err := c.Acquire(context.Background(), g.claim)
			h.net.mu.Lock()
			held := err == nil && r.State == driver.Held
			h.check.note("%s: %s acquires, shared %v: %v %d %v", key, g.claim.Owner, shared,
				r.State, r.Token, err != nil)
			if held {
				g.deadline = start.Add(validity(h.ttl))
				if clock.Now() < g.deadline {
					h.check.drawn(g, r.Token, above, begun)
					if block {
						h.check.drawn(g, r.Token+1, nil, begun)
					}
					h.check.gained(g)
				} else {
					g.over = true
				}
				c.grips = append(c.grips, g)
			}
			h.net.mu.Unlock()
			if held || !queue {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		c.release(g)
	}()
}

func (c *lossClient) release(g *grip) {
	h := c.h
	h.net.mu.Lock()
	g.over = true
	h.check.note("%s: %s is released", g.claim.Key, g.claim.Owner)
	h.check.weigh(g.claim.Key)
	h.net.mu.Unlock()
	_, _ = c.Release(context.Background(), g.claim)
}

// leave releases some of the claims. The history waits for that.
func (c *lossClient) leave(which func(*grip) bool) { c.leaveIn(&c.h.coming, which) }

func (c *lossClient) leaveIn(group *sync.WaitGroup, which func(*grip) bool) {
	h := c.h
	h.net.mu.Lock()
	var gone []*grip
	c.grips = slices.DeleteFunc(c.grips, func(g *grip) bool {
		leaves := which(g)
		if leaves {
			gone = append(gone, g)
		}
		return leaves
	})
	h.net.mu.Unlock()
	for _, g := range gone {
		group.Go(func() { c.release(g) })
	}
}

// run renews the claims as the kernel does.
func (c *lossClient) run() {
	defer close(c.done)
	for {
		pause := time.NewTimer(c.h.ttl/3 + time.Duration(c.r.Int64N(int64(c.h.ttl/30))))
		select {
		case <-pause.C:
			c.renew()
		case <-c.stop:
			pause.Stop()
			return
		}
	}
}

func (c *lossClient) renew() {
	h := c.h
	h.net.mu.Lock()
	now := clock.Now()
	var ended, grips []*grip
	var claims []driver.Claim
	var above [][]*promised
	var had [][]int
	for _, g := range c.grips {
		if !g.valid(now) {
			ended = append(ended, g)
			continue
		}
		claim := g.claim
		claim.Queue, claim.Block, claim.Token = false, 0, 0
		if !h.calm && c.r.IntN(20) == 0 {
			claim.Block, claim.Token = 1, c.clock()
		}
		if !g.shared && c.r.IntN(8) == 0 {
			g.shared, claim.Shared = true, true
		}
		grips, claims = append(grips, g), append(claims, claim)
		above, had = append(above, h.check.above(claim.Key)), append(had, h.check.having(&claim))
	}
	begun, calm := time.Now(), h.calm && time.Since(h.since) > 3*time.Second+h.guard
	h.net.mu.Unlock()
	if len(ended) > 0 {
		// The history may be waiting for those that it makes leave.
		c.leaveIn(&c.late, func(g *grip) bool { return slices.Contains(ended, g) })
	}
	if len(claims) == 0 {
		return
	}
	start := clock.Now()
	results, err := c.Renew(context.Background(), claims)
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if err != nil {
		if !c.stopped() {
			h.check.violate("%s: Renew: %v", c.name, err)
		}
		return
	}
	for i, g := range grips {
		if g.over {
			continue
		}
		r, claim := results[i], &claims[i]
		h.check.note("%s: %s is renewed: %v %v, by %d servers", claim.Key, claim.Owner, r.State,
			r.Token, len(had[i]))
		have := slices.DeleteFunc(h.check.having(claim), func(server int) bool {
			return !slices.Contains(had[i], server)
		})
		switch {
		case r.State == driver.Held && clock.Now() < g.deadline:
			g.deadline = start.Add(validity(h.ttl))
			g.claim.Shared = g.claim.Shared || claim.Shared
			h.check.gained(g)
			if claim.Block > 0 {
				h.check.drawn(g, r.Token, above[i], begun)
			}
		case r.State == driver.Lost:
			if len(have) >= h.check.need {
				h.check.violate("%s: %s is lost, though %d servers have it", claim.Key, claim.Owner,
					len(have))
			}
			g.over = true
			h.check.weigh(claim.Key)
			c.grips = slices.DeleteFunc(c.grips, func(o *grip) bool { return o == g })
		case calm && len(have) >= h.check.need:
			h.check.violate("%s: %s is not renewed though all is well: %v", claim.Key, claim.Owner,
				r.Err)
		}
	}
}

func (c *lossClient) stopped() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// quit closes the client, whatever it has.
func (c *lossClient) quit() {
	h := c.h
	h.net.mu.Lock()
	for _, g := range c.grips {
		g.over = true
		h.check.weigh(g.claim.Key)
	}
	h.net.mu.Unlock()
	close(c.stop)
	if err := c.Close(); err != nil {
		h.violate("Close: %v", err)
	}
	<-c.done
	c.late.Wait()
}

func (h *lossHistory) violate(format string, args ...any) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.check.violate(format, args...)
}

func (h *lossHistory) key() string { return fmt.Sprintf("k%d", h.r.IntN(h.keys)) }

// do changes servers and connections.
func (h *lossHistory) do(f func()) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	f()
}

func (h *lossHistory) run() {
	h.net.applied = func(keys []string) {
		keys = slices.Clone(keys)
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			h.check.weigh(key)
		}
	}
	for range h.lossPlan.clients {
		h.clients = append(h.clients, h.newClient())
	}
	for range 1 + h.r.IntN(3) {
		h.crowd()
	}
	time.Sleep(50 * time.Millisecond)
	for range h.steps {
		time.Sleep(time.Duration(h.r.ExpFloat64() * float64(h.pace)))
		h.step()
	}
	h.rest()
	for _, c := range h.clients {
		c.leave(func(*grip) bool { return true })
	}
	h.coming.Wait()
	time.Sleep(4*time.Second + 2*h.ttl)
	h.do(h.check.clean)
	for _, c := range h.clients {
		if keys, claims := c.Remembered(); keys > 0 || claims > 0 {
			h.violate("%s remembers %d keys and %d claims", c.name, keys, claims)
		}
		if n := c.Unsure(); n > 0 {
			h.violate("%s: %d claims have unsure nodes after their end", c.name, n)
		}
		c.quit()
	}
}

// crowd has many readers come at once.
func (h *lossHistory) crowd() {
	c := h.clients[h.r.IntN(len(h.clients))]
	for k := range h.keys {
		if h.keys > 2 && h.r.IntN(3) == 0 {
			continue
		}
		for range 1 + h.r.IntN(h.readers) {
			if c.count%120 < 119 {
				c.come(fmt.Sprintf("k%d", k), true, false, h.r.IntN(10) == 0)
			}
		}
	}
}

// step does one thing.
func (h *lossHistory) step() {
	c := h.clients[h.r.IntN(len(h.clients))]
	server := h.r.IntN(h.nodes)
	long := h.long()
	switch h.r.IntN(18) {
	case 0:
		h.crowd()
	case 1, 2:
		c.come(h.key(), true, h.r.IntN(3) == 0, h.r.IntN(4) == 0)
	case 3:
		c.come(h.key(), false, h.r.IntN(2) == 0, h.r.IntN(4) == 0)
	case 4:
		key, n := h.key(), h.r.IntN(3)
		c.leave(func(g *grip) bool {
			n--
			return g.claim.Key == key || n == 0
		})
	case 5: // a visitor, which comes and goes
		key := h.key()
		c.come(key, true, false, false)
		time.Sleep(4 * h.delay)
		c.leave(func(g *grip) bool { return g.number == c.count })
	case 6, 7:
		h.do(func() { c.cut(server, long) })
	case 8:
		h.do(func() { h.freeze(server, long) })
	case 9:
		h.do(func() {
			h.net.servers[server].slow = []time.Duration{0, 0, 5, 40, 60}[h.r.IntN(5)] *
				time.Millisecond
		})
	case 10:
		h.do(func() { h.loseLocked(server, h.r.IntN(2) == 0) })
	case 11:
		h.roll()
	case 12:
		switch h.r.IntN(3) {
		case 0:
			h.rest()
		case 1:
			c.quit()
			i := slices.Index(h.clients, c)
			h.clients[i] = h.newClient()
		default:
			h.do(h.lay)
		}
	case 13:
		if h.guard == 0 {
			h.evictSome(server, h.r.IntN(h.nodes))
		}
	default:
		h.plot()
	}
}

// roll has servers lose their data one after the other, each as soon as a majority knows all tokens
// again.
func (h *lossHistory) roll() {
	for range 1 + h.r.IntN(2*h.nodes) {
		h.do(func() { h.loseLocked(h.r.IntN(h.nodes), h.r.IntN(2) == 0) })
		for end := time.Now().Add(2*h.ttl + h.guard); time.Now().Before(end) && h.risks(); {
			time.Sleep(time.Millisecond)
		}
		if h.r.IntN(2) == 0 {
			time.Sleep(time.Duration(h.r.ExpFloat64() * float64(h.ttl/3)))
		}
	}
}

func (h *lossHistory) risks() (risk bool) {
	h.do(func() {
		for key, tokens := range h.check.tokens {
			h.check.weigh(key)
			for _, p := range tokens {
				risk = risk || p.atRisk && !p.void
			}
		}
	})
	return risk
}

// rest ends all faults, and waits until all claims have been healed.
func (h *lossHistory) rest() {
	h.do(func() {
		h.check.note("calm")
		h.calm, h.since = true, time.Now()
		for _, s := range h.net.servers {
			s.thaw()
			s.slow = 0
		}
		for _, c := range h.net.conns {
			c.cut = false
		}
	})
	h.coming.Wait()
	time.Sleep(h.guard + 4*time.Second + 4*h.ttl)
	h.do(h.check.calm)
	for _, c := range h.clients {
		if n := c.Unsure(); n > 0 {
			h.violate("%s: %d claims have unsure nodes though all is well", c.name, n)
		}
	}
	calls := make(map[string]uint64)
	h.do(func() {
		for _, c := range h.net.conns {
			calls["acquire"] += c.made["acquire"]
			calls["renew"] += c.made["renew"]
		}
	})
	time.Sleep(h.ttl)
	h.do(func() {
		for _, c := range h.net.conns {
			calls["acquire"] -= c.made["acquire"]
			calls["renew"] -= c.made["renew"]
		}
		if n := -calls["acquire"]; n > 0 {
			h.check.violate("%d acquisitions though all is well", n)
		}
		if n := -calls["renew"]; n > uint64(4*h.nodes*len(h.clients)) {
			h.check.violate("%d renewals in a TTL though all is well", n)
		}
		h.calm = false
		h.check.note("calm is over")
	})
}

// suffer runs a history in a bubble.
func (p *lossPlan) suffer(t *testing.T) (h *lossHistory) {
	bubble(t, func(t *testing.T) {
		h = &lossHistory{lossPlan: p, t: t, r: rand.New(rand.NewPCG(p.seed, 42)),
			net: newNetwork(p.seed, p.nodes, weather{delay: p.delay}, p.presence)}
		h.check = &lossCheck{net: h.net, guarded: p.guard > 0, need: p.nodes/2 + 1,
			tokens: make(map[string][]*promised), grips: make(map[string][]*grip)}
		for _, s := range h.net.servers {
			s.fences = make(map[string]driver.Token)
		}
		h.run()
	})
	return h
}

// TestR38_Losses runs HOLDFAST_LOSSES random histories of losses, from HOLDFAST_SEED on.
func TestR38_Losses(t *testing.T) {
	first := number(t, "HOLDFAST_SEED", uint64(time.Now().UnixNano()))
	n := number(t, "HOLDFAST_LOSSES", defaultHistories/20)
	t.Logf("seeds from %d: HOLDFAST_SEED=%d repeats", first, first)
	for seed := first; seed < first+n && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			p := newLossPlan(seed)
			h := p.suffer(t)
			if *verbose {
				t.Logf("%v\n%s", p, strings.Join(h.check.log, "\n"))
			}
			if len(h.check.violations) > 0 {
				t.Errorf("%v\n%s", p, strings.Join(h.check.violations, "\n"))
			}
		})
	}
}
