package child

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// leash has the kernel kill a whole process group when this process is gone. The parent-death
// signal would kill only the child itself: a script, but not the rsync that it waits for.
//
// It is a pipe. The child and what it starts inherit the reading end; only this process has the
// writing end. The reading end is set to send the group (O_ASYNC, F_SETOWN) SIGKILL (F_SETSIG) on
// any event. Nobody writes, so the only event is that the last writer is gone. The kernel remembers
// the group itself, not its number, so a later group with the same number is safe. Without the
// reading end open in the group the leash does nothing: then only the parent-death signal is left.
// So it is between the start of the child and attach, because the group must be there first, and
// only a program between holdfast and the child could wait for that.
type leash struct {
	reading, writing *os.File
}

func newLeash() (*leash, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	return &leash{os.NewFile(uintptr(fds[0]), "leash"), os.NewFile(uintptr(fds[1]), "leash")}, nil
}

// files returns the files that the child must inherit.
func (l *leash) files() []*os.File { return []*os.File{l.reading} }

// attach ties the group to this process.
func (l *leash) attach(group int) error {
	fd := l.reading.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETOWN, -group); err != nil &&
		!errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("F_SETOWN: %w", err)
	}
	if _, err := unix.FcntlInt(fd, unix.F_SETSIG, int(unix.SIGKILL)); err != nil {
		return fmt.Errorf("F_SETSIG: %w", err)
	}
	if _, err := unix.FcntlInt(fd, unix.F_SETFL, unix.O_ASYNC); err != nil {
		return fmt.Errorf("O_ASYNC: %w", err)
	}
	return nil
}

// close frees the group first, and then closes the writing end: what the child has left in the
// background must survive a normal end of this process.
func (l *leash) close() error {
	_, err := unix.FcntlInt(l.reading.Fd(), unix.F_SETFL, 0)
	return errors.Join(err, l.reading.Close(), l.writing.Close())
}
