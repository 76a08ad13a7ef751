package driver

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// LeaseClock reads the clock of leases: the time since some moment of this process. It includes the
// time in which the host was suspended, if the system tells it; time.Since does not. It never goes
// back, and follows the fake time of a testing/synctest bubble. A backend that relies on something
// for a limited time measures by this clock. It is safe for concurrent use.
func LeaseClock() time.Duration { return time.Duration(clock.Now()) }
