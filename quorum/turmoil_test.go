package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// tardy is a node whose answers and notices are read, now and then, at about the moment at which
// they are given up, and some are lost. Renewals are late to reach it as well, so that others
// overtake them.
type tardy struct {
	*memhold.Backend
	wait time.Duration
	one  int // of so many answers is late
}

var errLost = &driver.Error{Maybe: true, Err: errors.New("lost")}

func (b *tardy) late() {
	if rand.N(b.one) == 0 {
		time.Sleep(b.wait*3/4 + rand.N(b.wait/2))
	}
}

func (b *tardy) lost() bool { return rand.N(30) == 0 }

func (b *tardy) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	defer b.late()
	r, err := b.Backend.Acquire(ctx, c)
	if b.lost() {
		return driver.Result{}, errLost
	}
	return r, err
}

func (b *tardy) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	defer b.late()
	if b.lost() {
		return driver.Result{}, errLost
	}
	return b.Backend.Release(ctx, c)
}

func (b *tardy) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	defer b.late()
	b.late()
	return b.Backend.Renew(context.WithoutCancel(ctx), claims)
}

func (b *tardy) Notify(f func(driver.Notice)) (stop func()) {
	return b.Backend.Notify(func(n driver.Notice) {
		go func() {
			b.late()
			f(n)
		}()
	})
}

// turmoil is clients that take turns on a few keys of three tardy nodes, and what they were told.
// It checks that no two of them hold a key, that tokens rise, that nobody is told that it has lost
// what it holds, that all waits end, and that nothing is left on the nodes.
type turmoil struct {
	*testing.T
	memories []*memhold.Backend
	timeout  time.Duration

	mu    sync.Mutex
	holds map[string]*heldKey
	count map[string]int
}

// heldKey is who was told last that it holds a key, and until when, and the largest token.
type heldKey struct {
	owner string // empty: it has given the key up
	until time.Time
	token driver.Token
}

// participant is a client, and where those who wait through it read their notices.
type participant struct {
	*turmoil
	q       *quorum.Quorum
	inboxes sync.Map // of channels, by owner value
}

// client returns a client, of whose answers one in so many is late.
func (m *turmoil) client(one int) *participant {
	var nodes []driver.Backend
	for _, memory := range m.memories {
		nodes = append(nodes, &tardy{memory.Client(), m.timeout, one})
	}
	q, err := quorum.New(nodes, quorum.WithNodeTimeout(m.timeout), quorum.WithGuard(0))
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { q.Close() })
	p := &participant{turmoil: m, q: q}
	q.Notify(func(n driver.Notice) {
		if in, ok := p.inboxes.Load(n.Owner); ok {
			select {
			case in.(chan driver.Notice) <- n:
			default: // it asks again by itself
			}
		}
	})
	return p
}

func (m *turmoil) note(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count[what]++
}

func (m *turmoil) of(key string) *heldKey {
	if m.holds[key] == nil {
		m.holds[key] = new(heldKey)
	}
	return m.holds[key]
}

// above returns the largest token of the acquisitions that are complete.
func (m *turmoil) above(key string) driver.Token {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(key).token
}

// enter notes that a claim was told that it holds its key.
func (m *turmoil) enter(c driver.Claim, g granted, above driver.Token) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.of(c.Key)
	if h.owner != "" && time.Now().Before(h.until) {
		m.Errorf("%s has %q until in %v, and %s was told that it has it, %s", h.owner, c.Key,
			time.Until(h.until), c.Owner, g.how)
	}
	if g.token <= above {
		m.Errorf("%q: token %d after %d", c.Key, g.token, above)
	}
	m.count[g.how]++
	h.owner, h.until, h.token = c.Owner, g.until, max(h.token, g.token)
}

// leave notes that a claim is about to be given up.
func (m *turmoil) leave(c driver.Claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.of(c.Key); h.owner == c.Owner {
		h.owner = ""
	}
}

// renewed notes how a renewal ended that was sent at start. It reports whether the claim goes on.
func (m *turmoil) renewed(c driver.Claim, start time.Time, r driver.Result) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.of(c.Key)
	m.count["renewal "+r.State.String()]++
	if h.owner != c.Owner || !time.Now().Before(h.until) {
		return false // it is over by the clock
	}
	switch r.State {
	case driver.Held:
		h.until = start.Add(valid(c.TTL))
	case driver.Lost:
		m.Errorf("%s was told that it lost %q, %v before the end of its validity", c.Owner, c.Key,
			time.Until(h.until))
	}
	return r.State == driver.Held
}

// valid is how long a lease of that length counts.
func valid(length time.Duration) time.Duration { return length - length/100 - 2*time.Millisecond }

// granted is what a caller was told.
type granted struct {
	how   string // "" if it was not
	until time.Time
	token driver.Token
}

// turn takes one turn on a key, or fails to.
func (p *participant) turn(key string, alone bool) {
	c := driver.Claim{Key: key, Owner: driver.NewOwner("test"), TTL: time.Minute, Token: 1,
		Block: 1 + rand.Uint64N(2), Queue: rand.N(3) > 0}
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	if rand.N(3) == 0 {
		ctx, cancel = context.WithTimeout(p.Context(), rand.N(4*p.timeout))
	}
	defer cancel()
	above := p.above(key)
	g, clean := p.ask(ctx, &c)
	defer p.inboxes.Delete(c.Owner)
	if g.how == "" && clean {
		p.note("nothing to release")
		return
	}
	if g.how != "" {
		p.enter(c, g, above)
		p.renewals(c, alone)
		p.leave(c)
	}
	for {
		if _, err := p.q.Release(context.Background(), c); err == nil {
			return
		}
	}
}

// ask asks for a claim as the kernel does. It reports whether there is nothing to release.
func (p *participant) ask(ctx context.Context, c *driver.Claim) (g granted, clean bool) {
	in := make(chan driver.Notice, 1)
	p.inboxes.Store(c.Owner, in)
	var present time.Time
	var presence time.Duration
	for first := time.Now(); ; {
		start := time.Now()
		r, err := p.q.Acquire(ctx, *c)
		known := err == nil
		switch {
		case err == nil && r.State == driver.Held:
			return granted{"asked", start.Add(valid(c.TTL)), r.Token}, false
		case !c.Queue:
			return g, err == nil || errors.Is(err, driver.ErrUnavailable)
		case ctx.Err() != nil:
			if time.Since(first) > 30*time.Second {
				p.Errorf("%s waits for %q for ever", c.Owner, c.Key)
			}
			return g, false
		case known && !present.IsZero() &&
			time.Since(present) >= valid(min(presence, r.Presence)):
			p.note("another owner value")
			for {
				if _, err := p.q.Release(context.Background(), *c); err == nil {
					break
				}
			}
			p.inboxes.Delete(c.Owner)
			c.Owner, in, present = driver.NewOwner("test"), make(chan driver.Notice, 1), time.Time{}
			p.inboxes.Store(c.Owner, in)
			continue
		case known:
			present, presence = start, r.Presence
		}
		wait := min(presence/3, 4*p.timeout) + rand.N(p.timeout)
		if !known {
			wait = 5*p.timeout + rand.N(5*p.timeout)
		}
		pause := time.NewTimer(wait)
		select {
		case n := <-in:
			if until := present.Add(valid(presence)); known && presence > 0 &&
				n.Kind == driver.Granted && time.Now().Before(until) {
				return granted{"handed over", until, n.Token}, false
			}
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// renewals renews a claim a few times. The last renewal may be overtaken by the claim's release,
// and so may what it sets again on a node that has lost the key. Only a key that nobody else asks
// for is lost.
func (p *participant) renewals(c driver.Claim, alone bool) {
	c.Queue = false
	c.Block = rand.Uint64N(2)
	c.Token = 1
	for range rand.N(4) {
		if alone {
			p.memories[rand.N(len(p.memories))].Faults().Lose(c.Key)
		}
		start := time.Now()
		renew := func() driver.Result {
			results, err := p.q.Renew(context.Background(), []driver.Claim{c})
			if err != nil {
				return driver.Result{}
			}
			return results[0]
		}
		if rand.N(3) == 0 {
			go renew()
			return
		}
		if r := renew(); alone && r.State == driver.Lost || !p.renewed(c, start, r) {
			return
		}
	}
}

// Whatever is decided, given back, renewed, released and heard of at one moment: callers were told
// the truth. This is in real time, as in fake time few goroutines run at one moment.
func TestR1R17_Turmoil(t *testing.T) {
	m := &turmoil{T: t, timeout: 2 * time.Millisecond, holds: make(map[string]*heldKey),
		count: make(map[string]int)}
	for range 3 {
		memory := memhold.New(memhold.WithPresence(80 * time.Millisecond))
		t.Cleanup(func() { memory.Close() })
		m.memories = append(m.memories, memory)
	}
	var clients []*participant
	var all sync.WaitGroup
	for i := range 3 {
		p := m.client(4 + i)
		clients = append(clients, p)
		for k := range 5 {
			all.Go(func() {
				for range 20 {
					if k == 0 {
						p.turn(fmt.Sprint("alone", i), true)
					} else {
						p.turn(fmt.Sprint("k", rand.N(3)), false)
					}
				}
			})
		}
	}
	all.Wait()
	for _, p := range clients {
		p.settle()
	}
	for i, memory := range m.memories {
		for e, err := range memory.List(t.Context(), "") {
			if err != nil || e.Holder.Owner != "" {
				t.Errorf("node %d still has %q: %+v, %v", i, e.Key, e.Holder, err)
			}
		}
	}
	for _, what := range []string{"asked", "renewal held"} {
		if m.count[what] == 0 {
			t.Errorf("nothing of this happened: %s", what)
		}
	}
}

// settle waits until the client owes nothing to the nodes.
func (p *participant) settle() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for giveUp := time.Now().Add(30 * time.Second); ; <-tick.C {
		busy := false
		for _, n := range p.q.Status().Nodes {
			busy = busy || n.Owed > 0 || n.Pending > 0
		}
		if !busy {
			return
		}
		if time.Now().After(giveUp) {
			p.Errorf("the nodes still owe something: %+v", p.q.Status().Nodes)
			return
		}
	}
}
