//go:build !linux

package clock

import "time"

// SinceBoot returns a clock that all processes of the host share. Here it is the wall clock.
func SinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }

// sinceBoot is the wall clock: no other system lets the standard library read a clock that counts
// suspended time. So a wall clock that is set forward ends leases early, which is safe, and one that
// is set back hides as much suspended time.
func sinceBoot() time.Duration { return SinceBoot() }
