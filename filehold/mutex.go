//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// mutex is the file lock under which the directory is changed. It is held for microseconds, by one goroutine of a
// process at a time. The kernel frees it when its holder dies.
//
// It is tried for, and not waited for in the kernel: a system call that waits for a process that was stopped
// while it held the mutex could not be ended.
type mutex struct {
	fd int

	// stalled says that somebody else has held it for longer than it should take.
	stalled atomic.Bool
}

var errStopped = errors.New("stopped")

// How lock tries: some times in a row, for about as long as the mutex is usually held, so that it is not missed between two turns of a
// busy process; then it sleeps, at first briefly.
const (
	mutexSpins  = 20
	mutexPauses = 40
	longestNap  = 20 * time.Millisecond
)

// lock takes the mutex. It fails with errStopped when stop is closed, or with what the system said.
func (m *mutex) lock(stop <-chan struct{}) error {
	var timer *time.Timer
	for round := 0; ; round++ {
		for range mutexSpins {
			err := tryFlock(m.fd, syscall.LOCK_EX)
			if err == nil {
				m.stalled.Store(false)
				return nil
			}
			if err != syscall.EWOULDBLOCK {
				return os.NewSyscallError("flock", err)
			}
			runtime.Gosched()
		}
		// Random, so that of many who wait none is always too late.
		if round < mutexPauses {
			pause(10*time.Microsecond + rand.N(100*time.Microsecond))
			continue
		}
		m.stalled.Store(true)
		nap := min(time.Millisecond+time.Duration(round-mutexPauses)*20*time.Microsecond, longestNap)
		nap = nap/2 + rand.N(nap)
		if timer == nil {
			timer = time.NewTimer(nap)
			defer timer.Stop()
		} else {
			timer.Reset(nap)
		}
		select {
		case <-timer.C:
		case <-stop:
			return errStopped
		}
	}
}

func (m *mutex) unlock() { unflock(m.fd) }
