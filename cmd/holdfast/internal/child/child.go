// Package child runs a program while a lease lasts, and ends it with the lease.
//
// # The process group
//
// The program gets a process group of its own, so that a lost lease ends a script together with
// what it has started. holdfast passes each signal that it gets on to that group, once.
//
// # The terminal
//
// To a terminal, such a group is a background group. If stdin and stdout of the child are our
// terminal, and we have it, the child's group gets it before the program begins: some programs end
// if they are in the background when they set the terminal up. In other cases, such as a pipeline
// whose other programs use the terminal too, the child gets it when it asks, as from a shell: the
// system stops a background process that reads from its terminal or changes its settings. If that
// happens to the child while the terminal is ours, the child's group becomes the foreground group
// and is continued. It keeps the terminal until it ends or is stopped.
//
// While the child does not have the terminal, the terminal's own signals (control-C, control-\,
// control-Z, a change of the window's size) come to the group of holdfast, which passes them on.
// While the child has it, they come to the child's group alone. So the child gets each once. If the
// child dies of one, our own group gets it as well, so that a script that called holdfast ends too.
// One group for holdfast and the child would need none of this. But a lost lease could then end
// only the child itself, or everything in the group, the calling script included.
//
// Control-Z stops the child's group first, and then holdfast. The group has a second to stop by
// itself while it has the terminal, and then gets SIGSTOP: the child must not run while nobody
// renews its lease. A stopped holdfast does not renew, so after fg the child is continued only if
// the lease has lasted.
//
// # A child that is stopped
//
// If a child stops for another reason than the terminal, holdfast warns and keeps the lock, because
// whoever continues the child does not know of holdfast. A stopped child does not see a signal that
// ends programs (SIGTERM, SIGINT, SIGHUP, SIGQUIT), so it gets SIGCONT as well.
//
// # A child that does not end
//
// A child that was told to end by SIGTERM, SIGINT or SIGHUP has Options.Grace. Then it is killed
// with its group and, on Linux, with other groups that it has made. Otherwise a program that
// ignores the signal, as an interactive shell ignores SIGTERM, would keep the lock for ever. A key
// on the terminal comes to the child alone, which may do with it what it likes.
//
// # When holdfast itself is killed
//
// On Linux, if holdfast dies before the child, the kernel kills the whole group (see
// leash_linux.go). It also kills the child itself by the parent-death signal, as FreeBSD does.
// Elsewhere the child runs on, and the lease ends with its TTL. Two kinds of programs are out of
// reach: those of another user (sudo), and those that have left the group, such as daemons, timeout
// without --foreground, and the jobs of a shell with job control. On Linux a lost lease still ends
// those that are in our session: see groups_linux.go.
//
// A backend keeps its locks while any process has the files in Command.Inherit open. The system
// closes the files of a killed holdfast before it kills the child. If the child had not inherited
// them, the next holder could start in between. A child that closes files that it does not know
// loses this protection.
package child

import (
	"errors"
	"os"
	"time"
)

// Command is a program to start.
type Command struct {
	Path   string // what Find returned
	Args   []string
	Env    []string
	Stdin  *os.File
	Stdout *os.File
	Stderr *os.File
	// more files for the child, under the same numbers as here
	Inherit []*os.File
}

// Lease is the lease that the program runs under. *holdfast.Lock is one.
type Lease interface {
	// Done is closed when the lease has ended.
	Done() <-chan struct{}
	// Err returns why the lease has ended, and nil before. It reads the clock, so it may be ahead
	// of Done.
	Err() error
}

// Options say how Run supervises a program.
type Options struct {
	Lease

	// Signals are passed on to the child's process group. See Signals.
	Signals <-chan os.Signal

	// Grace is the time from a signal that tells the child to end (SIGTERM, SIGINT, SIGHUP) to
	// SIGKILL. After SIGQUIT, only a child that stops itself gets SIGKILL.
	Grace time.Duration

	// Reloads says that SIGHUP tells the child to read its settings again, and not to end.
	Reloads bool

	// Lost is called once, if the lease ends before the child does. It returns the grace: the time
	// from SIGTERM to SIGKILL for the process group. 0 means SIGKILL at once. It must not block.
	Lost func(reason error) (grace time.Duration)

	// Again says that this process goes on after the child, and may run another one. Then Run gives
	// back the signals that it has caught. Otherwise that would only cost time.
	Again bool

	// Warn reports a problem that does not end the child. It must not block.
	Warn func(err error)
}

// Result says how a program ended.
type Result struct {
	// Code is the exit code of the child, 128+N if signal N killed it, or 255 if it is not known.
	Code int

	// Lost is why the lease ended before the child did, or nil.
	Lost error
}

var (
	// ErrNotFound: there is no such command.
	ErrNotFound = errors.New("command not found")

	// ErrNotExecutable: the file exists and cannot be executed.
	ErrNotExecutable = errors.New("not executable")
)
