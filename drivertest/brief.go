package drivertest

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// brief is a short lease. It must not end before the rule has done its next steps.
type brief struct {
	key   string // its own
	ttl   time.Duration
	start clock.Instant // before the acquisition
}

// mayBeOver reports whether the machine has taken so long that the lease may be over.
func (b brief) mayBeOver() bool { return clock.Now().Sub(b.start) >= earliest(b.ttl) }

// beforeItEnds plays steps. They begin with an acquisition for a short lease, and end with an
// answer that must say that the claim is still held. If the claim is lost, and the machine took as
// long as the lease for the steps, the backend has broken no rule. Then beforeItEnds plays the
// steps again from the start, with another key and twice the lease. It returns the lease of the
// last time.
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

// earliest returns how soon a lease or a guard of d may be over. It allows for clocks that differ
// and servers that round as much as the kernel does.
func earliest(d time.Duration) time.Duration { return d - d/100 - margin/5 }
