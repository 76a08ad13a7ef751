//go:build !linux

package clock

import "time"

// suspended takes the wall clock's lead over the monotonic clock as suspended time: no
// other system lets the standard library read a clock that counts it. So a wall
// clock that is set forward ends leases early, which is safe; one that is set back does nothing.
func suspended() time.Duration {
	now := time.Now()
	return now.Round(0).Sub(base.Round(0)) - now.Sub(base)
}

// SinceBoot returns a clock that all processes of the host share. Here it is the wall clock.
func SinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }
