//go:build !linux

package clock

import "time"

// SinceBoot returns a clock that all processes of the host share. Here it is the wall clock.
func SinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }

// sinceBoot is the wall clock, because outside of Linux the standard library reads no clock that
// counts suspended time. If the wall clock is set forward, leases end early, which is safe. If it
// is set back, that much suspended time is hidden.
func sinceBoot() time.Duration { return SinceBoot() }
