package holdfast

import (
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// Token is a fencing token. Every acquisition has one. An acquisition of a key that starts after
// another one has completed has a larger Token, unless both share the key. Send the Token with each
// write to the protected store, and have the store refuse a token that is smaller than the largest
// it has seen with a write. The zero Token means none.
type Token = driver.Token

const (
	// maxAhead is how far ahead of its clock a Locker reserves tokens beyond the one that it needs,
	// in microseconds. Tokens follow the clock, so that they keep rising if a backend loses its
	// counter. The less they are ahead of the clock, the sooner it has caught up with them.
	maxAhead = 1_000_000

	// maxBelieved is how far ahead of its clock a Locker believes a token, in microseconds: a day.
	// If somebody has set a counter of one key wrongly, the error must not spread to other keys.
	maxBelieved = 24 * 60 * 60 * 1_000_000
)

// highest is the largest token a Locker has seen.
type highest struct{ token atomic.Uint64 }

// propose returns the token to ask for. It is the larger of two numbers: wall, which is a reading
// of the wall clock in microseconds, and the largest token seen plus one. Because of the clock,
// tokens rise again after a backend has lost its counter. A wrong clock does no harm, because the
// backend never goes below its counter.
func (h *highest) propose(wall uint64) Token {
	return Token(max(wall, h.token.Load()+1))
}

// saw notes that a block of tokens was granted. wall is a reading of the wall clock from before the
// request.
func (h *highest) saw(first Token, block, wall uint64) {
	last := uint64(first) + block - 1
	if last > wall+maxBelieved {
		return
	}
	for {
		old := h.token.Load()
		if last <= old || h.token.CompareAndSwap(old, last) {
			return
		}
	}
}

// block returns how many tokens to reserve when first is proposed: one for each turn that a run may
// have, but none that is more than maxAhead ahead of the wall clock, except the first. Goroutines
// that share a lease share one token.
func (c *cohort) block(first Token, wall uint64) uint64 {
	limit := wall + maxAhead
	if c.terms.shared || uint64(first) >= limit {
		return 1
	}
	return min(uint64(c.locker.config.turns), limit-uint64(first))
}
