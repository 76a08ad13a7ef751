//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// record is what the directory knows of one key. Times are on the clock that all processes of the
// machine share, clock.SinceBoot. They need no mark of their boot, because a claim counts only
// while the member that made it lives, and no member lives through a boot.
type record struct {
	key     string
	holders []*party // one, or several that share the key
	queue   []*party // by ticket, then by owner value
}

// party is a holder of a key, or a waiter.
type party struct {
	owner  string
	member memberID
	until  time.Duration // end of the lease or the presence
	token  uint64        // holder: the first of the block; waiter: proposed
	block  uint64
	ticket uint64 // waiter: its place

	// shared: it holds the key, or wants it, together with others that do.
	shared bool

	// arrived: the ticket is the order of arrival, not one that the waiter brought.
	arrived bool

	// disturbed: the waiter waits behind other parties than before. Not stored.
	disturbed bool
}

// free reports whether nobody holds the key or waits for it.
func (r *record) free() bool { return len(r.holders) == 0 && len(r.queue) == 0 }

// admits reports whether those who hold the key leave room for one more.
func (r *record) admits(shared bool) bool {
	return len(r.holders) == 0 || shared && r.holders[0].shared
}

// holder returns the party that holds the key with that owner value, or nil.
func (r *record) holder(owner string) *party {
	for _, h := range r.holders {
		if h.owner == owner {
			return h
		}
	}
	return nil
}

// longest returns the holder whose lease ends last, or nil.
func (r *record) longest() *party {
	if len(r.holders) == 0 {
		return nil
	}
	return slices.MaxFunc(r.holders, func(a, b *party) int { return cmp.Compare(a.until, b.until) })
}

// enter makes p a holder.
func (r *record) enter(p *party) {
	r.holders = append(r.holders, p)
	if len(r.holders) > 1 && len(r.queue) > 0 {
		r.queue[0].disturbed = true // it waits behind all of them
	}
}

// leave makes h a holder no more.
func (r *record) leave(h *party) {
	r.holders = slices.DeleteFunc(r.holders, func(p *party) bool { return p == h })
}

// find returns the waiter's index in the queue, or -1.
func (r *record) find(owner string) int {
	return slices.IndexFunc(r.queue, func(w *party) bool { return w.owner == owner })
}

// remove takes a waiter out of the queue.
func (r *record) remove(i int) {
	r.queue = slices.Delete(r.queue, i, i+1)
	if i < len(r.queue) {
		r.queue[i].disturbed = true
	}
}

// order compares a waiter's place with that of another ticket and owner.
func (p *party) order(ticket uint64, owner string) int {
	return cmp.Or(cmp.Compare(p.ticket, ticket), cmp.Compare(p.owner, owner))
}

// insert puts a waiter where its ticket says, and returns its index.
func (r *record) insert(w *party) int {
	if w.ticket == 0 {
		// The clock alone does not give the order: the wall clock may stand still or be set back.
		w.ticket, w.arrived = max(clock.Microseconds(), 1), true
		for _, other := range r.queue {
			if other.arrived {
				w.ticket = max(w.ticket, other.ticket+1)
			}
		}
	}
	i, _ := slices.BinarySearchFunc(r.queue, w, func(a, b *party) int {
		return a.order(b.ticket, b.owner)
	})
	r.queue = slices.Insert(r.queue, i, w)
	if i+1 < len(r.queue) {
		r.queue[i+1].disturbed = true
	}
	return i
}

const recordVersion = 2

// encode returns the record in bytes.
func (r *record) encode() []byte {
	c := coder{}
	r.code(&c)
	return c.b
}

// decodeRecord reads what encode wrote. It fails with errDamaged.
func decodeRecord(b []byte) (r record, err error) {
	c := coder{b: b, reads: true}
	if r.code(&c); c.bad || len(c.b) > 0 {
		return record{}, errDamaged
	}
	return r, nil
}

func (r *record) code(c *coder) {
	version := uint64(recordVersion)
	c.number(&version)
	c.bad = c.bad || version != recordVersion
	c.text(&r.key)
	c.parties(&r.holders)
	c.bad = c.bad || len(r.holders) > 1 &&
		slices.ContainsFunc(r.holders, func(h *party) bool { return !h.shared })
	c.parties(&r.queue)
}

// coder appends values to b or, if it reads, takes them off its front. After a failure bad stays
// set and the values mean nothing.
type coder struct {
	b          []byte
	reads, bad bool
}

func (c *coder) number(v *uint64) {
	if !c.reads {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	n := 0
	if *v, n = binary.Uvarint(c.b); n <= 0 {
		c.b, c.bad = nil, true
		return
	}
	c.b = c.b[n:]
}

func (c *coder) text(s *string) {
	n := uint64(len(*s))
	c.number(&n)
	switch {
	case !c.reads:
		c.b = append(c.b, *s...)
	case n > uint64(len(c.b)):
		c.b, c.bad = nil, true
	default:
		*s, c.b = string(c.b[:n]), c.b[n:]
	}
}

func (c *coder) parties(list *[]*party) {
	n := uint64(len(*list))
	c.number(&n)
	for i := uint64(0); i < n && !c.bad; i++ {
		if c.reads {
			*list = append(*list, new(party))
		}
		c.party((*list)[i])
	}
}

const (
	flagArrived = 1 << iota
	flagShared
	flagsEnd
)

func (c *coder) party(p *party) {
	member, until, flags := string(p.member[:]), uint64(p.until), uint64(0)
	if p.arrived {
		flags |= flagArrived
	}
	if p.shared {
		flags |= flagShared
	}
	c.text(&p.owner)
	c.text(&member)
	for _, v := range []*uint64{&until, &p.token, &p.block, &p.ticket, &flags} {
		c.number(v)
	}
	copy(p.member[:], member)
	p.until = time.Duration(until)
	p.arrived, p.shared = flags&flagArrived != 0, flags&flagShared != 0
	c.bad = c.bad || len(member) != len(p.member) || p.until < 0 || flags >= flagsEnd
}
