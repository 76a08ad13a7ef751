package memhold_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// model is the contract, written down for clarity: no timers, no index, no counters.
type model struct {
	now      time.Duration
	presence time.Duration
	tickets  uint64
	keys     map[string]*modelKey
	grants   []modelGrant // handoffs that are to be pushed
}

type modelKey struct {
	holders []modelHolder // the longest lease last; several only if they share the key
	shared  bool
	waiters []modelWaiter
}

type modelHolder struct {
	owner   string
	expires time.Duration
}

type modelWaiter struct {
	owner  string
	ticket uint64
	until  time.Duration
	block  uint64
	shared bool
}

type modelGrant struct {
	key, owner string
	block      uint64
}

func (m *model) key(name string) *modelKey {
	if m.keys[name] == nil {
		m.keys[name] = new(modelKey)
	}
	return m.keys[name]
}

// advance lets time pass: at each moment in which a lease or a presence ends, the key is settled.
func (m *model) advance(d time.Duration) {
	m.now += d
	for name, k := range m.keys {
		for {
			next := m.now + 1
			for _, h := range k.holders {
				next = min(next, h.expires)
			}
			for _, w := range k.waiters {
				next = min(next, w.until)
			}
			if next > m.now {
				break
			}
			m.settle(name, k, next, "")
		}
	}
}

// settle ends leases and presences that are over, and lets in the waiters whose turn it is.
func (m *model) settle(name string, k *modelKey, at time.Duration, asker string) {
	k.holders = slices.DeleteFunc(slices.Clone(k.holders), func(h modelHolder) bool {
		return h.expires <= at
	})
	k.waiters = slices.DeleteFunc(slices.Clone(k.waiters), func(w modelWaiter) bool {
		return w.until <= at
	})
	for len(k.waiters) > 0 {
		w := k.waiters[0]
		if len(k.holders) > 0 && !(k.shared && w.shared) {
			break
		}
		k.waiters = k.waiters[1:]
		k.shared = w.shared
		k.hold(w.owner, w.until)
		if w.owner != asker {
			m.grants = append(m.grants, modelGrant{name, w.owner, w.block})
		}
	}
}

// hold makes the owner a holder, or gives it another lease.
func (k *modelKey) hold(owner string, expires time.Duration) {
	k.leave(owner)
	k.holders = append(k.holders, modelHolder{owner, expires})
	slices.SortStableFunc(k.holders, func(a, b modelHolder) int {
		return cmp.Compare(a.expires, b.expires)
	})
}

func (k *modelKey) leave(owner string) (held bool) {
	n := len(k.holders)
	k.holders = slices.DeleteFunc(slices.Clone(k.holders), func(h modelHolder) bool {
		return h.owner == owner
	})
	return len(k.holders) < n
}

// behind reports whether all waiters come after the claim.
func (k *modelKey) behind(c driver.Claim) bool {
	for _, w := range k.waiters {
		if !c.Queue || c.Ticket == 0 || w.owner == c.Owner ||
			cmp.Or(cmp.Compare(w.ticket, c.Ticket), cmp.Compare(w.owner, c.Owner)) < 0 {
			return false
		}
	}
	return true
}

func (k *modelKey) holds(owner string) bool {
	return slices.ContainsFunc(k.holders, func(h modelHolder) bool { return h.owner == owner })
}

func (k *modelKey) place(owner string) int {
	return 1 + slices.IndexFunc(k.waiters, func(w modelWaiter) bool { return w.owner == owner })
}

func (m *model) acquire(c driver.Claim) driver.Result {
	k := m.key(c.Key)
	m.settle(c.Key, k, m.now, c.Owner)
	mine := k.holds(c.Owner)
	switch {
	case len(k.holders) == 0:
		k.shared = c.Shared
		k.hold(c.Owner, m.now+c.TTL)
		return driver.Result{State: driver.Held}
	case k.shared && c.Shared && (mine || k.behind(c)), !k.shared && mine:
		k.hold(c.Owner, m.now+c.TTL)
		return driver.Result{State: driver.Held}
	}
	last := k.holders[len(k.holders)-1]
	r := driver.Result{State: driver.Busy, Holder: last.owner, ExpiresIn: last.expires - m.now}
	if mine {
		return r
	}
	place := k.place(c.Owner)
	if place == 0 && !c.Queue {
		return r
	}
	r.Presence = min(m.presence, c.TTL)
	w := modelWaiter{c.Owner, c.Ticket, m.now + r.Presence, c.Block, c.Shared}
	if place > 0 {
		w.ticket, w.shared = k.waiters[place-1].ticket, k.waiters[place-1].shared
		k.waiters[place-1] = w
	} else {
		if w.ticket == 0 {
			m.tickets = max(m.tickets+1, uint64(time.Now().UnixMicro()))
			w.ticket = m.tickets
		}
		k.waiters = append(k.waiters, w)
		slices.SortFunc(k.waiters, func(a, b modelWaiter) int {
			return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.owner, b.owner))
		})
	}
	r.Place = k.place(c.Owner)
	return r
}

func (m *model) renew(c driver.Claim) (s driver.State, waiting bool) {
	k := m.key(c.Key)
	if !k.holds(c.Owner) {
		return driver.Lost, false
	}
	k.shared = k.shared || c.Shared
	k.hold(c.Owner, m.now+c.TTL)
	m.settle(c.Key, k, m.now, "")
	return driver.Held, c.Block > 0 && len(k.waiters) > 0
}

func (m *model) release(c driver.Claim) driver.State {
	k := m.key(c.Key)
	if k.leave(c.Owner) {
		m.settle(c.Key, k, m.now, "")
		return driver.Held
	}
	place := k.place(c.Owner)
	if place > 0 {
		k.waiters = slices.Delete(k.waiters, place-1, place)
	}
	m.settle(c.Key, k, m.now, "")
	if place > 0 {
		return driver.Busy
	}
	return driver.Lost
}

func (m *model) inspect(name string) driver.Entry {
	k := m.key(name)
	e := driver.Entry{Key: name}
	m.settle(name, k, m.now, "")
	for _, h := range k.holders {
		e.Sharers = append(e.Sharers, driver.Party{Owner: h.owner, ExpiresIn: h.expires - m.now})
	}
	if !k.shared && len(e.Sharers) > 0 {
		e.Holder, e.Sharers = e.Sharers[0], nil
	}
	for _, w := range k.waiters {
		e.Waiters = append(e.Waiters, driver.Party{Owner: w.owner, ExpiresIn: w.until - m.now})
	}
	return e
}

// run makes the calls that data describes on memhold and on the model, and compares every answer,
// every notice and, after each call, the whole state of the key. It checks tokens by the rules, not
// by their numbers.
func run(t *testing.T, data []byte) {
	const presence = 3 * time.Second
	clients := []*memhold.Backend{memhold.New(memhold.WithPresence(presence))}
	clients = append(clients, clients[0].Client())
	m := &model{presence: presence, keys: make(map[string]*modelKey)}
	ctx := t.Context()
	last := make(map[string]driver.Token)   // last token of the last block
	tokens := make(map[string]driver.Token) // of the latest block, by key and owner value

	// What one call granted, to its caller and to waiters, has to be above everything before, and
	// disjoint.
	var granted []driver.Claim // Token is the first of the block
	grant := func(c driver.Claim, token driver.Token) {
		t.Helper()
		if token < c.Token {
			t.Fatalf("token %d of %q is below %d, which was proposed", token, c.Key, c.Token)
		}
		c.Token = token
		granted = append(granted, c)
		tokens[c.Key+c.Owner] = max(tokens[c.Key+c.Owner], token)
	}
	var mu sync.Mutex
	var notices []driver.Notice
	for _, b := range clients {
		b.Notify(func(n driver.Notice) {
			mu.Lock()
			defer mu.Unlock()
			notices = append(notices, n)
		})
	}
	compareGrants := func() {
		t.Helper()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		got := make(map[string][]modelGrant)
		for _, n := range notices {
			got[n.Key] = append(got[n.Key], modelGrant{n.Key, n.Owner, n.Block})
			grant(driver.Claim{Key: n.Key, Owner: n.Owner, Block: n.Block}, n.Token)
		}
		slices.SortFunc(granted, func(a, b driver.Claim) int {
			return cmp.Compare(a.Token, b.Token)
		})
		for _, g := range granted {
			if g.Token <= last[g.Key] {
				t.Fatalf("token %d of %q follows %d; want a larger one",
					g.Token, g.Key, last[g.Key])
			}
			last[g.Key] = g.Token + driver.Token(max(g.Block, 1)) - 1
		}
		want := make(map[string][]modelGrant)
		for _, g := range m.grants {
			want[g.key] = append(want[g.key], g)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) { // fmt sorts maps
			t.Fatalf("notices %v; want %v", got, want)
		}
		notices, m.grants, granted = nil, nil, nil
	}

	// shown checks a token that Inspect shows, if it is known, and removes it.
	shown := func(key string, p *driver.Party) {
		t.Helper()
		if want, ok := tokens[key+p.Owner]; ok && p.Token != want {
			t.Fatalf("%q of %q is shown with token %d; want %d", p.Owner, key, p.Token, want)
		}
		p.Token = 0
	}

	ttls := []time.Duration{time.Second, 2500 * time.Millisecond, 10 * time.Second, time.Minute}
	pauses := []time.Duration{time.Microsecond, 300 * time.Millisecond, time.Second,
		2200 * time.Millisecond}
	for len(data) >= 3 {
		op, who, arg := data[0], data[1], data[2]
		data = data[3:]
		c := driver.Claim{
			Key:   []string{"k", "l"}[who>>3&1],
			Owner: string('a' + rune(who&7)),
			TTL:   ttls[arg&3],
			Block: uint64(arg >> 2 & 3),
			Queue: arg&16 == 0,
		}
		shares := func(owner string) bool {
			// Seldom, because it is not allowed. The answers are known even then.
			return (owner > "d") != (who>>5 == 7)
		}
		c.Shared = shares(c.Owner)
		if arg&64 != 0 {
			c.Ticket = uint64(arg>>5) + 1
		}
		if arg&128 != 0 {
			c.Token = last[c.Key] + driver.Token(arg)
		}
		b := clients[who>>4&1]
		switch op % 8 {
		case 0, 1, 2:
			got, err := b.Acquire(ctx, c)
			want := m.acquire(c)
			if want.State == driver.Held {
				grant(c, got.Token)
				got.Token = 0
			} else {
				// It may still hold the key: it queued to share it, and now asks otherwise.
				delete(tokens, c.Key+c.Owner)
			}
			if queued := want.State == driver.Busy && want.Place > 0; (got.Clock > 0) != queued {
				t.Fatalf("Acquire(%+v) tells the clock %d; want one only if queued, which is %v",
					c, got.Clock, queued)
			}
			got.Clock = 0
			if err != nil || got != want {
				t.Fatalf("Acquire(%+v) = %+v, %v; want %+v", c, got, err, want)
			}
		case 3:
			other := c
			other.Owner = string('a' + rune(arg>>4&7))
			other.Shared = shares(other.Owner)
			claims := []driver.Claim{other, c, other}
			got, err := b.Renew(ctx, claims)
			if err != nil || len(got) != 3 {
				t.Fatalf("Renew of 3 claims: %v, %v; want 3 results", got, err)
			}
			for i, c := range claims {
				if want, waiting := m.renew(c); got[i].State != want || got[i].Waiting != waiting {
					t.Fatalf("Renew, claim %d (%+v) = %+v; want %v, waiting: %v", i, c, got[i],
						want, waiting)
				}
				if got[i].State == driver.Held && c.Block > 0 {
					grant(c, got[i].Token)
				}
			}
		case 4:
			got, err := b.Release(ctx, c)
			if want := m.release(c); err != nil || got.State != want {
				t.Fatalf("Release(%+v) = %v, %v; want %v", c, got, err, want)
			}
		case 5, 6:
			time.Sleep(pauses[arg&3])
			synctest.Wait()
			m.advance(pauses[arg&3])
		case 7:
			held := len(m.key(c.Key).holders) > 0
			if got := b.Faults().Lose(c.Key); got != held {
				t.Fatalf("Lose(%q) = %v; want %v", c.Key, got, held)
			}
			m.key(c.Key).holders = nil
			// A lost key is settled by the next call, or by a timer before: not left to chance.
			if arg&1 == 0 {
				got, err := b.Acquire(ctx, c)
				want := m.acquire(c)
				if want.State == driver.Held {
					grant(c, got.Token)
					got.Token = 0
				} else {
					delete(tokens, c.Key+c.Owner)
				}
				got.Clock = 0
				if err != nil || got != want {
					t.Fatalf("Acquire(%+v) of a lost key = %+v, %v; want %+v", c, got, err, want)
				}
			} else if got, err := b.Release(ctx, c); err != nil || got.State != m.release(c) {
				t.Fatalf("Release(%+v) of a lost key = %v, %v; want what the model says",
					c, got, err)
			}
		}
		compareGrants()
		if op>>3&3 == 0 {
			continue // Inspect settles the key: what a call has left undone would not show
		}
		got, err := b.Inspect(ctx, c.Key)
		if err != nil {
			t.Fatalf("Inspect: %v", err)
		}
		shown(c.Key, &got.Holder)
		for i := range got.Sharers {
			shown(c.Key, &got.Sharers[i])
		}
		if want := m.inspect(c.Key); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("state after op %d by %s with %08b:\n%+v; want\n%+v", op%8, c.Owner, arg,
				got, want)
		}
	}

	// Whatever is left ends by itself.
	time.Sleep(time.Hour)
	synctest.Wait()
	for e, err := range clients[0].List(ctx, "") {
		t.Errorf("an hour later there is still %+v, %v; want nothing", e, err)
	}
	for _, b := range clients {
		b.Close()
	}
}

// TestRandomOperations compares memhold with the model on random sequences of calls. To repeat one,
// put its seed into the call of rand.NewPCG.
func TestRandomOperations(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, i))
		data := make([]byte, 3*120)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		synctest.Test(t, func(t *testing.T) { run(t, data) })
		if t.Failed() {
			t.Fatalf("seed %d, sequence %d", seed, i)
		}
	}
}

// FuzzBackend looks for sequences on which memhold and the model differ:
//
//	go test -run=- -fuzz=FuzzBackend -fuzzminimizetime=1x ./memhold
func FuzzBackend(f *testing.F) {
	f.Add([]byte{})
	// a holds, b and c queue, b dies, a releases.
	f.Add([]byte{0, 0, 2, 0, 1, 0, 0, 2, 2, 5, 0, 3, 0, 2, 2, 5, 0, 3, 4, 0, 0})
	// Tickets, a renewal with blocks, a loss and a stranger.
	f.Add([]byte{0, 0, 0x0f, 0, 1, 0xe2, 0, 2, 0x62, 3, 0, 0x2e, 7, 3, 0x12, 4, 1, 0, 4, 2, 0})
	// Two keys, two clients, leases that end while others wait.
	f.Add([]byte{0, 0, 0, 0, 8, 1, 0, 0x11, 3, 0, 0x1a, 3, 5, 0, 2, 5, 0, 2, 5, 0, 3, 0, 0x11, 3, 3,
		0x11, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 3*500 {
			return
		}
		synctest.Test(t, func(t *testing.T) { run(t, data) })
	})
}
