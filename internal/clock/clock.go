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

// noise is how much suspended time one comparison of two clocks may leave out, because they cannot
// be read at once. There are three comparisons: two of clocks, and one of the wall clock's lead.
// Three times noise is less than the constant part of the drift allowance, which therefore covers
// it.
const noise = time.Millisecond / 2

var (
	// base has a monotonic reading, so the wall clock does not matter to time.Since(base).
	base = time.Now()

	// offset is how much sinceBoot is ahead of time.Since(base) before any suspend.
	offset = sinceBoot() - time.Since(base)

	host suspends

	// simulated is what SimulateSuspend has added to the suspended time, and hidden what
	// SimulateHiddenSuspend has added.
	simulated, hidden atomic.Int64

	// readBoot is sinceBoot, but in tests.
	readBoot = sinceBoot
)

// Now reads the lease clock. It never goes back.
//
// The clock that counts suspended time costs a system call, which is several times as much as all
// the rest. So Now asks it only if the wall clock has moved against the monotonic clock since the
// last time, as it does in a suspend. If somebody sets the wall clock back by exactly the time of a
// suspend, the suspend stays hidden until the next [Look].
func Now() Instant {
	t := time.Now()
	elapsed := t.Sub(base)
	if elapsed < 0 {
		return bubble(elapsed)
	}
	lead := t.Round(0).Sub(base.Round(0)) - elapsed
	if slept, ok := host.known(lead); ok {
		return Instant(elapsed+slept) + Instant(simulated.Load())
	}
	return look(lead)
}

// Look is Now that always asks the clock that counts suspended time. A watchdog looks from time to
// time, so that a suspend is noticed whatever became of the wall clock.
func Look() Instant {
	t := time.Now()
	elapsed := t.Sub(base)
	if elapsed < 0 {
		return bubble(elapsed)
	}
	return look(t.Round(0).Sub(base.Round(0)) - elapsed)
}

// bubble returns the time of a synctest bubble. A bubble's time begins before the process did, and
// the host's clocks know nothing of it.
func bubble(elapsed time.Duration) Instant {
	return Instant(elapsed) + Instant(simulated.Load())
}

func look(lead time.Duration) Instant {
	// Read the clock that counts suspended time first. Then a delay between the two readings makes
	// the suspended time look smaller, never larger.
	begun := time.Since(base)
	boot := readBoot() - offset + time.Duration(hidden.Load())
	elapsed := time.Since(base)
	slept := host.note(boot-elapsed, lead, elapsed-begun)
	return Instant(elapsed+slept) + Instant(simulated.Load())
}

// suspends is how much suspended time is known of.
type suspends struct {
	counted atomic.Int64 // in nanoseconds; it only grows
	lead    atomic.Int64 // the wall clock's, against the monotonic one, when it was last noted
}

// known returns the suspended time that is counted, if the wall clock's lead shows that there was
// no suspend since it was noted.
func (s *suspends) known(lead time.Duration) (slept time.Duration, ok bool) {
	// The lead is read first, because it is noted after the time that belongs to it.
	moved := lead - time.Duration(s.lead.Load())
	return time.Duration(s.counted.Load()), -noise < moved && moved < noise
}

// note counts the suspended time that a clock has shown after the lead was read, and returns what
// is counted now. The clock may have shown too little, by as much as the reading took. If the
// reading took long, for example because the goroutine did not run in between, the lead is not
// noted, and the next reading asks again.
func (s *suspends) note(slept, lead, took time.Duration) time.Duration {
	old := s.counted.Load()
	for slept-time.Duration(old) >= noise && !s.counted.CompareAndSwap(old, int64(slept)) {
		old = s.counted.Load()
	}
	if took < noise {
		s.lead.Store(int64(lead))
	}
	if slept-time.Duration(old) < noise {
		return time.Duration(old)
	}
	return slept
}

// Time returns the wall-clock time at which instant i is or was, for showing to people
// and for the Deadline of a context. Never compare what it returns to decide about a lease.
func Time(i Instant) time.Time { return time.Now().Add(i.Sub(Now())) }

// Microseconds returns the wall clock in microseconds since 1970, or 0 before that. It proposes
// fencing tokens, whose order does not depend on it.
func Microseconds() uint64 { return uint64(max(0, time.Now().UnixMicro())) }

// In returns the time d from now, for the deadline of a context that bounds a request.
func In(d time.Duration) time.Time { return time.Now().Add(d) }

// Reached reports whether a time that [In] returned has come.
func Reached(t time.Time) bool { return !time.Now().Before(t) }

// SimulateSuspend makes the clock behave as if the host had just been suspended for d.
// For tests. It affects the whole process.
func SimulateSuspend(d time.Duration) { simulated.Add(int64(d)) }

// SimulateHiddenSuspend makes the clock behave as if the host had just been suspended for d, and
// somebody had set the wall clock back by as much: only [Look] notices. For tests. It affects the
// whole process, but no bubble of testing/synctest.
func SimulateHiddenSuspend(d time.Duration) { hidden.Add(int64(d)) }
