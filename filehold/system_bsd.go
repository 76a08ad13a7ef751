//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package filehold

import (
	"crypto/sha256"
	"runtime"
	"syscall"
)

const (
	// keepBit: files cannot be sticky.
	keepBit = 0

	// pipesTell: not every one of these systems tells a writer that a named pipe has no reader.
	pipesTell = false
)

// readBootMark returns a mark that is the same for all processes of one boot, or the zero mark.
// Where only the time of the boot is known, setting the clock changes the mark.
func readBootMark() (mark bootMark) {
	name := "kern.boottime"
	if runtime.GOOS == "darwin" {
		name = "kern.bootsessionuuid"
	}
	boot, err := syscall.Sysctl(name)
	if err == nil && boot != "" {
		sum := sha256.Sum256([]byte(boot))
		copy(mark[:], sum[:])
	}
	return mark
}

// readClockMark returns the zero mark: there is only the wall clock.
func readClockMark(string) (mark clockMark) { return mark }

// flockHolder returns the process that holds a lock on the file, which these systems do not tell.
func flockHolder(fileID) int { return 0 }

// oneKernel matters only where clocks have marks.
func oneKernel(string) bool { return true }
