package holdfast

import "github.com/holdfast-go/holdfast/internal/clock"

// leaseHeap orders leases by when they are due. If many leases are renewed at about the same time,
// the heap takes a good part of the processor time of a renewal, and most of that is cache misses.
// So the heap contains the times, and the four children of an entry share a cache line. Guarded by
// watchdog.mu.
type leaseHeap []scheduled

type scheduled struct {
	due   clock.Instant
	lease *lease
}

const heapArity = 4

// put adds the lease, or moves it if it is already there.
func (q *leaseHeap) put(h *lease, due clock.Instant) {
	if h.index < 0 {
		h.index = len(*q)
		*q = append(*q, scheduled{})
	}
	q.sift(h.index, scheduled{due, h})
}

// remove takes a lease out of the heap. The lease is there.
func (q *leaseHeap) remove(h *lease) {
	last := len(*q) - 1
	moved := (*q)[last]
	(*q)[last] = scheduled{}
	*q = (*q)[:last]
	if moved.lease != h {
		q.sift(h.index, moved)
	}
	h.index = -1
}

// sift finds the place of s, starting at place i, moves other entries out of the way and puts s
// there. It overwrites the entry at place i.
func (q leaseHeap) sift(i int, s scheduled) {
	for i > 0 {
		parent := (i - 1) / heapArity
		if q[parent].due <= s.due {
			break
		}
		q.set(i, q[parent])
		i = parent
	}
	for {
		first := i*heapArity + 1
		if first >= len(q) {
			break
		}
		least := first
		for child := first + 1; child < min(first+heapArity, len(q)); child++ {
			if q[child].due < q[least].due {
				least = child
			}
		}
		if s.due <= q[least].due {
			break
		}
		q.set(i, q[least])
		i = least
	}
	q.set(i, s)
}

func (q leaseHeap) set(i int, s scheduled) {
	q[i] = s
	s.lease.index = i
}
