//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// model is what a key should be: plain lists, settled after each change. In the model a dead party
// is gone at once; in a record it stays until it is in somebody's way.
type model struct {
	now   time.Duration
	dead  map[memberID]bool
	dry   bool // no token can be drawn
	held  []*party
	queue []*party
}

func (m *model) live(p *party) bool { return m.now < p.until && !m.dead[p.member] }

// settle removes what has ended, and lets in those whose turn it is.
func (m *model) settle() {
	over := func(p *party) bool { return !m.live(p) }
	m.held, m.queue = slices.DeleteFunc(m.held, over), slices.DeleteFunc(m.queue, over)
	for !m.dry && len(m.queue) > 0 && m.room(m.queue[0].shared) {
		m.held, m.queue = append(m.held, m.queue[0]), m.queue[1:]
	}
}

func (m *model) room(shared bool) bool {
	return !slices.ContainsFunc(m.held, func(h *party) bool { return !h.shared || !shared })
}

func take(list *[]*party, owner string) *party {
	i := slices.IndexFunc(*list, func(p *party) bool { return p.owner == owner })
	if i < 0 {
		return nil
	}
	p := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return p
}

// acquire returns the state, and whether it fails for want of a token.
func (m *model) acquire(me memberID, c driver.Claim) (s driver.State, fails bool) {
	// A claim that asks when its turn has come gets its full lease.
	first := len(m.queue) == 0 || m.queue[0].owner == c.Owner
	h := take(&m.held, c.Owner)
	grant := h != nil && (c.Shared || !h.shared) || h == nil && first && m.room(c.Shared)
	if grant && m.dry {
		return driver.Unknown, true
	}
	p := &party{owner: c.Owner, member: me, until: m.now + c.TTL, shared: c.Shared}
	if h != nil {
		m.held = append(m.held, h)
		if grant {
			h.member, h.until = me, p.until
			return driver.Held, false
		}
		return driver.Busy, false
	}
	if grant {
		take(&m.queue, c.Owner)
		m.held = append(m.held, p)
		return driver.Held, false
	}
	p.until = m.now + min(presence, c.TTL)
	i := slices.IndexFunc(m.queue, func(w *party) bool { return w.owner == c.Owner })
	if i >= 0 {
		p.shared = m.queue[i].shared
		m.queue[i] = p
	} else if c.Queue {
		m.queue = append(m.queue, p)
	}
	return driver.Busy, false
}

func (m *model) renew(me memberID, c driver.Claim) (s driver.State, fails bool) {
	h := take(&m.held, c.Owner)
	switch {
	case h == nil:
		return driver.Lost, false
	case c.Block > 0 && m.dry:
		return driver.Unknown, true
	}
	h.member, h.until, h.shared = me, m.now+c.TTL, h.shared || c.Shared
	m.held = append(m.held, h)
	return driver.Held, false
}

func (m *model) release(c driver.Claim) driver.State {
	if take(&m.held, c.Owner) != nil {
		return driver.Held
	}
	if take(&m.queue, c.Owner) != nil {
		return driver.Busy
	}
	return driver.Lost
}

func clone(list []*party) (out []*party) {
	for _, p := range list {
		q := *p
		out = append(out, &q)
	}
	return out
}

// TestStepsFollowTheModel applies random jobs of three members to a record, as it is stored and
// read, and compares it with the model. Its invariants:
//
//   - every answer is the model's, and so is who holds the key and who waits, with their ends, and
//     whether a renewal is told that somebody does;
//   - no two grants have a token in common, and a grant alone has a larger one than all before;
//   - a waiter's member learns of everything that it waits for: its own grant and another party
//     before it, by a message if the job is another member's;
//   - it watches the members of all parties right before its waiters;
//   - a record that has changed says so, and is one that can be stored.
func TestStepsFollowTheModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		runSteps(t, random)
		if t.Failed() {
			return
		}
	}
}

func runSteps(t *testing.T, random *rand.Rand) {
	t.Helper()
	m := &model{now: time.Hour, dead: make(map[memberID]bool)}
	var stored record
	var next uint64 = 100
	watched := make(map[memberID][]memberID) // by whom
	members := []memberID{{4: 1}, {4: 2}, {4: 3}}
	tokens := make(map[string]uint64) // the largest block's end of each, while it holds
	highest := uint64(0)
	var log []string
	for range 25 {
		m.dry = random.IntN(12) == 0
		if random.IntN(3) == 0 {
			m.now += time.Duration(1+random.IntN(4)) * time.Second / 2
		}
		if random.IntN(12) == 0 { // a member dies; another takes its place
			i := random.IntN(len(members))
			m.dead[members[i]] = true
			// The number of the dead keeps it from being another one's, dead or alive.
			members[i] = memberID{4: byte(random.IntN(250)), 5: byte(len(m.dead))}
		}
		owner := random.IntN(6)
		me := members[owner%len(members)] // a claim is one process's
		c := driver.Claim{Key: "k", Owner: fmt.Sprintf("%c%x", 'a'+owner, me[4:6]),
			Shared: owner >= 2, TTL: time.Duration(1+random.IntN(6)) * time.Second,
			Queue: random.IntN(4) > 0, Block: random.Uint64N(3)}

		before := stored.encode()
		var err error
		if stored, err = decodeRecord(before); err != nil {
			t.Fatalf("%q: not read again: %v", log, err)
		}
		s := step{me: me, now: m.now, record: &stored,
			lives: func(id memberID) bool { return !m.dead[id] },
			draw: func(proposed, block uint64) (uint64, error) {
				if m.dry {
					return 0, errors.New("no token")
				}
				next += block
				return next - block, nil
			}}
		queued := clone(m.queue)
		kind := []jobKind{jobAcquire, jobAcquire, jobRenew, jobRelease, jobLook, jobForget}[min(5,
			random.IntN(12)/2)]
		holds := slices.ContainsFunc(m.held, func(h *party) bool {
			return h.owner == c.Owner && m.live(h)
		})
		if random.IntN(8) == 0 && (holds || kind != jobAcquire) {
			c.Shared = !c.Shared // a downgrade, or an overtaken call; a waiter asks alike
		}
		var got driver.Result
		var want driver.State
		var fails bool
		backup := *m
		backup.held, backup.queue = clone(m.held), clone(m.queue)
		over := func(p *party) bool { return !m.live(p) }
		m.held = slices.DeleteFunc(m.held, over)
		m.queue = slices.DeleteFunc(m.queue, over)
		s.prune()
		switch kind {
		case jobAcquire:
			s.key = c.Key
			// A claim behind others whose turn it is gets in with them.
			if len(m.queue) > 0 && m.queue[0].owner != c.Owner {
				m.settle()
			}
			got, err = s.acquire(&c)
			want, fails = m.acquire(me, c)
		case jobRenew:
			got, err = s.renew(&c)
			want, fails = m.renew(me, c)
		case jobRelease:
			got = s.release(&c)
			want = m.release(c)
		case jobLook:
			s.tidy()
		case jobForget:
			s.forget()
			m.queue = slices.DeleteFunc(m.queue, func(w *party) bool { return w.member == me })
		}
		log = append(log, fmt.Sprintf("%v %d by %x: %+v dry %v: %v", m.now, kind, me[4:6], c, m.dry,
			got.State))
		if (err != nil) != fails || got.State != want {
			t.Fatalf("%q: got %v, %v; want %v, failure %v", log, got.State, err, want, fails)
		}
		if fails {
			m.held, m.queue = backup.held, backup.queue
			stored, _ = decodeRecord(before)
			continue
		}
		m.settle()
		if want := kind == jobRenew && want == driver.Held && c.Block > 0 &&
			len(m.queue) > 0; got.Waiting != want {
			t.Fatalf("%q: told that somebody waits: %v; want %v", log, got.Waiting, want)
		}

		// What is in force.
		show := func(list []*party) (out []string) {
			for _, p := range list {
				if m.live(p) {
					out = append(out, fmt.Sprint(p.owner, p.member[4:6], p.until, p.shared))
				}
			}
			return out
		}
		gotHeld, wantHeld := show(s.holders), show(m.held)
		slices.Sort(gotHeld)
		slices.Sort(wantHeld)
		if !slices.Equal(gotHeld, wantHeld) || !slices.Equal(show(s.queue), show(m.queue)) {
			t.Fatalf("%q: held %q, waiting %q; want %q, %q", log, gotHeld, show(s.queue), wantHeld,
				show(m.queue))
		}
		// Not by the order of the calls: by what the record says.
		rest := byOwner(s.holders)
		for owner, p := range rest {
			if tokens[owner] == p.token {
				continue
			}
			if p.token < 100 || p.token < highest {
				t.Fatalf("%q: %s has token %d after %d", log, owner, p.token, highest)
			}
		}
		var fresh []*party
		for _, p := range s.holders {
			if tokens[p.owner] != p.token {
				fresh = append(fresh, p)
			}
		}
		slices.SortFunc(fresh, func(a, b *party) int { return int(a.token) - int(b.token) })
		for _, p := range fresh {
			if p.token < highest {
				t.Fatalf("%q: two have token %d", log, p.token)
			}
			highest = p.token + max(p.block, 1)
		}
		clear(tokens)
		for owner, p := range rest {
			tokens[owner] = p.token
		}
		// Who is told.
		told := append(s.concerned(), me)
		for _, w := range queued {
			if p := rest[w.owner]; p != nil && !m.dead[p.member] &&
				!slices.Contains(told, p.member) {
				t.Fatalf("%q: %s is not told of its grant", log, w.owner)
			}
		}
		for _, id := range told {
			other := s
			other.me = id
			watched[id] = other.behind()
		}
		for i, w := range s.queue {
			ahead := s.holders
			if i > 0 {
				ahead = s.queue[i-1 : i]
			}
			for _, p := range ahead {
				if p.member != w.member && m.live(w) &&
					!slices.Contains(watched[w.member], p.member) {
					t.Fatalf("%q: %s does not watch %s", log, w.owner, p.owner)
				}
			}
		}
		if last := s.longest(); got.State == driver.Busy && kind == jobAcquire && last != nil &&
			(got.Holder != last.owner || got.ExpiresIn != last.until-m.now) {
			t.Fatalf("%q: told %+v; the longest lease is %+v", log, got, last)
		}
		unchanged, _ := decodeRecord(before)
		unchanged.key = s.key
		now, err := decodeRecord(s.encode())
		if err != nil || !s.changed && !reflect.DeepEqual(unchanged, now) {
			t.Fatalf("%q: a change is not stored: %v", log, err)
		}
	}
}

func byOwner(list []*party) map[string]*party {
	out := make(map[string]*party)
	for _, p := range list {
		out[p.owner] = p
	}
	return out
}
