//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import "golang.org/x/sys/unix"

// terminal is the controlling terminal of this process; nil if it has none.
type terminal struct{ fd int }

// openTerminal returns the controlling terminal. It is not an os.File: that would go to the runtime's poller.
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

// give makes a process group the foreground group. The caller ignores SIGTTOU, which would stop it if it is not in
// the foreground itself.
func (t *terminal) give(group int) error {
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}
