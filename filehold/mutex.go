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

// How often lock tries, and how. Who holds the mutex needs it for less time than it takes to sleep and
// wake up, unless it was preempted.
const (
	mutexSpins  = 25
	mutexPauses = 60
	stallAfter  = mutexSpins + mutexPauses
)

// lock takes the mutex. It fails with errStopped when stop is closed, or with what the system said.
func (m *mutex) lock(stop <-chan struct{}) error {
	var timer *time.Timer
	for try := 0; ; try++ {
		err := tryFlock(m.fd, syscall.LOCK_EX)
		if err == nil {
			m.stalled.Store(false)
			return nil
		}
		if err != syscall.EWOULDBLOCK {
			return os.NewSyscallError("flock", err)
		}
		switch {
		case try < mutexSpins:
			runtime.Gosched()
		case try < stallAfter:
			// Random, so that of many who wait none is always too late.
			pause(10*time.Microsecond + rand.N(100*time.Microsecond))
		default:
			m.stalled.Store(true)
			d := time.Millisecond + rand.N(min(time.Duration(try-stallAfter+4)*time.Millisecond/2, 20*time.Millisecond))
			if timer == nil {
				timer = time.NewTimer(d)
				defer timer.Stop()
			} else {
				timer.Reset(d)
			}
			select {
			case <-timer.C:
			case <-stop:
				return errStopped
			}
		}
	}
}

func (m *mutex) unlock() { unflock(m.fd) }
