package holdfast

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// The heap is compared with a list while leases come, move and go.
func TestLeaseHeapKeepsTheEarliestFirst(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	var heap leaseHeap
	due := make(map[*lease]clock.Instant)
	holds := make([]*lease, 200)
	for i := range holds {
		holds[i] = &lease{index: -1}
	}
	for step := range 20_000 {
		h := holds[random.IntN(len(holds))]
		if h.index >= 0 && random.IntN(3) == 0 {
			heap.remove(h)
			delete(due, h)
		} else {
			due[h] = clock.Instant(random.IntN(1000))
			heap.put(h, due[h])
		}
		if len(heap) != len(due) {
			t.Fatalf("step %d with seed %d: %d leases, want %d", step, seed, len(heap), len(due))
		}
		all := make([]clock.Instant, 0, len(heap))
		for i, s := range heap {
			if s.lease.index != i || s.due != due[s.lease] {
				t.Fatalf(
					"step %d, seed %d: place %d has a lease due at %d; want it in place %d, due at %d",
					step, seed, i, s.due, s.lease.index, due[s.lease])
			}
			all = append(all, s.due)
		}
		if len(all) > 0 && all[0] != slices.Min(all) {
			t.Fatalf("step %d with seed %d: the first is due at %d, another one at %d", step, seed,
				all[0], slices.Min(all))
		}
	}
}
