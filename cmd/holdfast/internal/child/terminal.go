//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process; nil if it has none.
type terminal struct{ fd int }

// openTerminal returns the controlling terminal. It avoids os.File, which would add it to the
// runtime's poller.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd}
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// foreground returns the terminal's foreground process group, or 0 if there is none.
func (t *terminal) foreground() int {
	if t == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil || group < 0 {
		return 0
	}
	return group
}

// give makes a process group the foreground group. The caller must ignore SIGTTOU, which stops a
// background process that does this.
func (t *terminal) give(group int) error {
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

// onTerminal reports whether a file is the controlling terminal of this process.
func onTerminal(file *os.File) bool {
	_, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCGPGRP)
	return err == nil
}
