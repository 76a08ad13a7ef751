package main

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clockBase and clockOffset tie Go's clock, which is cheap to read, to the one that all processes of the machine share.
var clockBase, clockOffset = func() (time.Time, time.Duration) {
	base := time.Now()
	// The tightest of several pairs of readings.
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

// now is the time on a clock that is the same for all processes of the machine.
func now() time.Duration { return time.Since(clockBase) + clockOffset }

// cpuTime is the processor time that this process has used so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(fmt.Errorf("getrusage: %w", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
