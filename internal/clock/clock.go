// Package clock is the only place where Holdfast reads a clock to reason about leases.
//
// A lease is local elapsed time. It must not move when somebody sets the wall clock, and it must
// count the time in which the host was suspended, which Go's monotonic reading does not. So an
// [Instant] is Go's monotonic clock plus the suspended time seen so far. Under testing/synctest the
// first part is the bubble's fake time.
package clock

import (
	"sync/atomic"
	"time"
)

// Instant is a moment on this process's lease clock, in nanoseconds. Instants of different
// processes are not comparable.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// noise is how much the suspended time may seem to grow before it counts: two clocks cannot be read
// at once. It is less than the constant part of the drift allowance, which therefore covers it.
const noise = time.Millisecond

var (
	// base has a monotonic reading, so the wall clock does not matter to time.Since(base).
	base = time.Now()

	// offset is how much sinceBoot is ahead of time.Since(base) before any suspend.
	offset = sinceBoot() - time.Since(base)

	// counted is how much suspended time Now includes, in nanoseconds. It only grows.
	counted atomic.Int64

	// simulated is what SimulateSuspend has added to that.
	simulated atomic.Int64
)

// Now reads the lease clock. It never goes back.
func Now() Instant {
	// Read the clock that counts suspended time first: a delay between the two readings then makes
	// the suspended time look smaller, never larger.
	boot := sinceBoot() - offset
	elapsed := time.Since(base)
	now := Instant(elapsed) + Instant(simulated.Load())
	if elapsed < 0 {
		// In a synctest bubble, whose time begins before this process did: the boot clock knows
		// nothing of it.
		return now
	}
	slept := int64(boot - elapsed)
	for {
		old := counted.Load()
		if slept-old < int64(noise) {
			return now + Instant(old)
		}
		if counted.CompareAndSwap(old, slept) {
			return now + Instant(slept)
		}
	}
}

// Time returns the wall-clock time at which instant i is or was, for showing to people
// and for the Deadline of a context. Never compare what it returns to decide about a lease.
func Time(i Instant) time.Time { return time.Now().Add(i.Sub(Now())) }

// Microseconds returns the wall clock in microseconds since 1970, or 0 before that. It proposes
// fencing tokens, whose order does not depend on it.
func Microseconds() uint64 { return uint64(max(0, time.Now().UnixMicro())) }

// In returns the time d from now, for the deadline of a context that bounds a request.
func In(d time.Duration) time.Time { return time.Now().Add(d) }

// SimulateSuspend makes the clock behave as if the host had just been suspended for d.
// For tests. It affects the whole process.
func SimulateSuspend(d time.Duration) { simulated.Add(int64(d)) }
