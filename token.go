package holdfast

import (
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Token is a fencing token (R38): every acquisition has one, and an acquisition of a key that starts
// after another has completed has a larger one. Send it along with each write to what the lock
// protects, and have that refuse a token smaller than the largest it has seen. The zero Token is none.
type Token = driver.Token

// highest is the largest token a Locker has seen.
type highest struct{ token atomic.Uint64 }

// propose returns a token to ask for: the wall clock in microseconds, or one more than the largest seen if
// the clock is behind. The clock makes tokens rise again where a backend lost its counter; a clock that is
// wrong does no harm, as the backend never goes below its counter.
func (h *highest) propose() Token {
	return Token(max(clock.Microseconds(), h.token.Load()+1))
}

// saw notes that a block of tokens was granted.
func (h *highest) saw(first Token, block uint64) {
	last := uint64(first) + block - 1
	for {
		old := h.token.Load()
		if last <= old || h.token.CompareAndSwap(old, last) {
			return
		}
	}
}
