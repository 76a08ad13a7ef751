//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package filehold

import (
	"crypto/sha256"
	"runtime"
	"syscall"
	"time"
)

const (
	// keepBit: files cannot be sticky.
	keepBit = 0

	// deathPoll is how often to look whether a member lives that is waited for. The end of a named pipe's writer is not
	// reported on every one of these systems.
	deathPoll = 100 * time.Millisecond

	// oneClock: where the boot is known by its time only, setting the clock changes the mark.
	oneClock = runtime.GOOS == "darwin"
)

func pause(d time.Duration) { time.Sleep(d) }

// readBootMark returns what is the same for all processes that share a boot.
func readBootMark() (mark bootMark, known bool) {
	name := "kern.boottime"
	if runtime.GOOS == "darwin" {
		name = "kern.bootsessionuuid"
	}
	boot, err := syscall.Sysctl(name)
	if err != nil || boot == "" {
		return mark, false
	}
	sum := sha256.Sum256([]byte(boot))
	return bootMark(sum[:len(mark)]), true
}

// flockHolder returns the process that holds a lock on the file, which these systems do not tell.
func flockHolder(int) int { return 0 }
