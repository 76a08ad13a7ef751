package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// clockBase and clockOffset turn a reading of Go's clock, which is cheap, into one of the clock
// that all processes of the machine share.
var clockBase, clockOffset = func() (time.Time, time.Duration) {
	base := time.Now()
	// Use the pair of readings with the least time between them.
	var offset, error time.Duration
	for i := range 100 {
		before := time.Since(base)
		var shared unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &shared); err != nil {
			panic(err) // there is no system without it
		}
		after := time.Since(base)
		if i == 0 || after-before < error {
			error = after - before
			offset = time.Duration(shared.Nano()) - (before + error/2)
		}
	}
	return base, offset
}()

// now returns the time on the clock that all processes of the machine share.
func now() time.Duration { return time.Since(clockBase) + clockOffset }

// cpuTime returns the processor time used so far: by this process for unix.RUSAGE_SELF, by its
// children that have ended for unix.RUSAGE_CHILDREN.
func cpuTime(who int) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(who, &usage); err != nil {
		panic(err) // there is no system without it
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
