package child

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// leash has the kernel kill a whole process group when this process is gone. The parent-death signal reaches
// only the child itself: of a shell script that waits for rsync it would leave the rsync.
//
// It is a pipe. The child, and what it starts, has the reading end open and does not know; only this process has the
// writing end. The reading end is set to signal the group (O_ASYNC, F_SETOWN) with SIGKILL (F_SETSIG) when something happens to
// it. Nobody writes, so all that can happen is that the last writer is gone. The kernel remembers the group itself and not its
// number, so a group that took over the number is safe. The leash is off when nobody in the group has the reading end open
// any more: then all that is left is the parent-death signal.
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

// files are to be inherited by the child.
func (l *leash) files() []*os.File { return []*os.File{l.reading} }

// attach ties the group to this process.
func (l *leash) attach(group int) error {
	fd := l.reading.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETOWN, -group); err != nil && !errors.Is(err, unix.ESRCH) {
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

// close lets the group go, and only then gives up the writing end: what the child has left running in the
// background outlives this process when that ends in good order.
func (l *leash) close() error {
	_, err := unix.FcntlInt(l.reading.Fd(), unix.F_SETFL, 0)
	return errors.Join(err, l.reading.Close(), l.writing.Close())
}
