package drivertest

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// brief is a lease that must not end before a rule has done what it does next.
type brief struct {
	key   string // its own
	ttl   time.Duration
	start clock.Instant // before the acquisition
}

// mayBeOver reports whether the machine has taken as long as the lease.
func (b brief) mayBeOver() bool { return clock.Now().Sub(b.start) >= earliest(b.ttl) }

// beforeItEnds plays steps that begin with an acquisition for a short lease and end with an answer
// which must be that the claim is held still. If it is lost, and the machine took as long as the
// lease for the steps, the backend has broken no rule: then they are played again from the start,
// with another key and twice the lease. It returns the lease that they were played with.
func (s *suite) beforeItEnds(steps func(brief) driver.Result) brief {
	s.Helper()
	for ttl := s.ShortTTL; ; ttl *= 2 {
		lease := brief{fmt.Sprintf("k/%v", ttl), ttl, clock.Now()}
		r := steps(lease)
		switch {
		case r.State == driver.Held:
			return lease
		case r.State != driver.Lost || !lease.mayBeOver():
			s.Fatalf("a claim that was acquired for %v is %v (%v) before that has passed; "+
				"want held", ttl, r.State, r.Err)
		case 2*ttl > s.TTL/2:
			s.Fatalf("the machine took more than %v for a few requests", ttl)
		}
	}
}

// earliest is how soon a lease or a guard of d may be over. The allowance is the kernel's for
// clocks that differ and servers that round.
func earliest(d time.Duration) time.Duration { return d - d/100 - margin/5 }
