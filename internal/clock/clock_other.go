//go:build !linux

package clock

import "time"

// SinceBoot returns a clock that all processes of the host share. Here it is the wall clock.
func SinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }

// sinceBoot is the wall clock: outside of Linux the standard library reads no clock that counts
// suspended time. A wall clock that is set forward ends leases early, which is safe. One that is
// set back hides as much suspended time.
func sinceBoot() time.Duration { return SinceBoot() }
