package zkhold

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// trusted is how many reads in a row have to find a slot as this Backend has left it before one
	// is left out.
	trusted = 2

	// recallTime is how long a slot counts as known. It is short for the sake of operators: a slot
	// that was deleted and made again counts its versions from the beginning.
	recallTime = time.Second
)

// recall is what this Backend knows of the slots that it has written last. Where nobody else comes,
// a slot is as it left it, so a read tells nothing: the transaction is refused anyway if the slot
// has changed. Where others come, a refused transaction costs more than a read. So a Backend has to
// find its own version several times before it leaves out a read, and begins anew when it errs.
type recall struct {
	mu    sync.Mutex
	slots map[string]*recalled // by path
}

type recalled struct {
	streak  int // reads that have found the version
	version int32
	at      time.Duration // when it was written, by the lease clock
	slot    *slot         // nil while somebody plans on it, and if it is not to be used
}

// wrote notes that what was planned on the slot has been written.
func (r *recall) wrote(s *slot) {
	version := s.version + 1
	if s.version == wrapping {
		version++
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.slots == nil {
		r.slots = make(map[string]*recalled)
	}
	known := r.slots[s.path]
	if known == nil {
		known = new(recalled)
		r.slots[s.path] = known
	}
	known.version, known.at, known.slot = version, driver.LeaseClock(), nil
	if s.parties() <= 1 {
		known.slot = &slot{path: s.path, version: version, size: s.size, record: s.record}
	}
}

// found notes the version that a read has found.
func (r *recall) found(path string, version int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.slots[path]
	switch {
	case known == nil:
	case known.version == version:
		known.streak++
	default:
		known.streak = 0
	}
}

// erred notes that the slot was not as the Backend had left it, or may not be.
func (r *recall) erred(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.slots, path)
}

// take returns the slot, if it is worth a try, for one plan: nobody is in it, or the owner alone by
// a node of this session. Whether that node is there is seen when it is deleted.
func (r *recall) take(path, owner string, ours func(node string) bool) *slot {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.slots[path]
	if known == nil || known.slot == nil || known.streak < trusted ||
		driver.LeaseClock()-known.at > recallTime {
		return nil
	}
	for _, l := range known.slot.Locks {
		if owner == "" || len(l.Waiters) > 0 || find(l.Holders, owner) < 0 ||
			!ours(l.Holders[0].Node) {
			return nil
		}
	}
	s := known.slot
	known.slot = nil
	return s
}
