//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// memberID names an open Backend. It is random, and never used again.
type memberID [16]byte

func (id memberID) String() string { return hex.EncodeToString(id[:]) }

// record is what the directory knows of one key. Times are on the clock that all processes of the machine
// share, clock.SinceBoot. They need no mark of the boot that they belong to: a claim counts only while the member that made it
// lives, and no member lives through a boot.
type record struct {
	key    string
	holder *party
	queue  []*party // by ticket, then by owner value
}

// party is the holder of a key, or a waiter.
type party struct {
	owner  string
	member memberID
	until  time.Duration // end of the lease or the presence
	token  uint64        // holder: the first of the block; waiter: proposed
	block  uint64
	ticket uint64 // waiter: its place

	// arrived: the ticket stands for the order of arrival and was not given by the waiter.
	arrived bool

	// disturbed says that whom the waiter waits behind is not who it was. Not stored.
	disturbed bool
}

// free reports whether there is nothing to remember.
func (r *record) free() bool { return r.holder == nil && len(r.queue) == 0 }

// find returns the waiter's index in the queue, or -1.
func (r *record) find(owner string) int {
	return slices.IndexFunc(r.queue, func(w *party) bool { return w.owner == owner })
}

// remove takes a waiter out. The one behind it now waits behind somebody else.
func (r *record) remove(i int) {
	r.queue = slices.Delete(r.queue, i, i+1)
	if i < len(r.queue) {
		r.queue[i].disturbed = true
	}
}

// insert puts a waiter where its ticket says.
func (r *record) insert(w *party) {
	if w.ticket == 0 {
		// After the last one to arrive: the wall clock may stand still or be set back, and the order of
		// arrival must not follow it.
		w.ticket, w.arrived = max(clock.Microseconds(), 1), true
		for _, other := range r.queue {
			if other.arrived {
				w.ticket = max(w.ticket, other.ticket+1)
			}
		}
	}
	i, _ := slices.BinarySearchFunc(r.queue, w, func(a, b *party) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.owner, b.owner))
	})
	r.queue = slices.Insert(r.queue, i, w)
	if i+1 < len(r.queue) {
		r.queue[i+1].disturbed = true
	}
}

const (
	recordVersion = 1

	partyArrived = 1 << 0
)

func (r *record) append(b []byte) []byte {
	b = append(b, recordVersion)
	b = appendString(b, r.key)
	if r.holder != nil {
		b = append(b, 1)
		b = r.holder.append(b)
	} else {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(r.queue)))
	for _, w := range r.queue {
		b = w.append(b)
	}
	return b
}

func (p *party) append(b []byte) []byte {
	b = appendString(b, p.owner)
	b = append(b, p.member[:]...)
	b = binary.AppendUvarint(b, uint64(p.until))
	b = binary.AppendUvarint(b, p.token)
	b = binary.AppendUvarint(b, p.block)
	b = binary.AppendUvarint(b, p.ticket)
	var flags byte
	if p.arrived {
		flags |= partyArrived
	}
	return append(b, flags)
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decodeRecord reads what append wrote. It fails with errDamaged.
func decodeRecord(b []byte) (record, error) {
	d := decoder{b: b}
	var r record
	version := d.byte()
	r.key = d.string()
	if d.byte() != 0 {
		r.holder = d.party()
	}
	n := d.number()
	// Not trusted with an allocation: each waiter takes some bytes.
	if n > uint64(len(d.b)) {
		d.bad = true
	}
	for i := uint64(0); i < n && !d.bad; i++ {
		r.queue = append(r.queue, d.party())
	}
	if d.bad || len(d.b) > 0 || version != recordVersion {
		return record{}, errDamaged
	}
	return r, nil
}

// decoder takes values off the front of b; once that fails, bad stays set and the values mean nothing.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.bad = true
		d.b = nil
		return nil
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad = true
		d.b = nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string { return string(d.take(d.number())) }

func (d *decoder) party() *party {
	p := new(party)
	p.owner = d.string()
	copy(p.member[:], d.take(uint64(len(p.member))))
	p.until = time.Duration(d.number())
	p.token = d.number()
	p.block = d.number()
	p.ticket = d.number()
	p.arrived = d.byte()&partyArrived != 0
	if p.until < 0 {
		d.bad = true
	}
	return p
}
