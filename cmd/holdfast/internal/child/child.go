// Package child runs a program for as long as a lease lasts, and not longer.
//
// # The process group
//
// The program gets a process group of its own, so that a lost lease ends all of it: a script is stopped together
// with what it has started. What holdfast is sent is passed on to that group, once.
//
// # The terminal
//
// A group of its own is a background group to a terminal. So the child is given the terminal when it asks for it, as
// a shell would: the system stops a background process that reads from its terminal or changes its settings; when
// that happens to the child, and the terminal is ours at that moment, the child's group becomes the foreground group
// and goes on. It keeps the terminal until it ends or is stopped.
//
// Until the child asks, the terminal's own signals (control-C, control-\, control-Z, a change of the window's size)
// come to the group of holdfast, which passes them on. Afterwards they come to the group of the child alone. So the
// child gets each once. Staying in one group with the child would have needed nothing of this, but a lost lease
// could then only be told to the child itself, or to everything in the group, also a script that has called holdfast.
//
// When the job is stopped with control-Z the child's group is stopped first, for good measure with SIGSTOP, and then
// holdfast: the child never runs while nobody keeps its lock. A stopped holdfast does not renew, so after fg the child
// is continued only if the lease has lasted.
//
// # When holdfast itself is killed
//
// On Linux the whole group dies with SIGKILL when holdfast is gone, however that ended (see leash_linux.go), and the
// child itself also by the parent-death signal, which FreeBSD has as well. Elsewhere the child runs on, and the lease ends with
// its TTL. Out of reach are programs that run as another user (sudo) and those that left the group on purpose (daemons).
//
// The files in Command.Inherit are those by which a backend keeps its locks while anybody has them open. The system
// closes the files of a dead process before it tells anybody of the death; without these files the next holder
// could start in between. A child that closes files that it does not know gives this up.
package child

import (
	"errors"
	"os"
	"time"
)

// Command is a program to start.
type Command struct {
	Path    string // what Find returned
	Args    []string
	Env     []string
	Stdin   *os.File
	Stdout  *os.File
	Stderr  *os.File
	Inherit []*os.File // further files that the child has open, under whatever number they have here
}

// Lease is what the program may run for. *holdfast.Lock is one.
type Lease interface {
	// Done is closed when the lease has ended.
	Done() <-chan struct{}
	// Err says why it has ended, and is nil before. It reads the clock.
	Err() error
}

// Options are how a program is run.
type Options struct {
	Lease

	// Signals are passed on to the child's process group. See Signals.
	Signals <-chan os.Signal

	// Lost is called once, when the lease has ended before the child has. It returns the grace: how long after
	// SIGTERM what is left of the process group gets SIGKILL. Without a grace it gets SIGKILL at once. It must not block.
	Lost func(reason error) (grace time.Duration)

	// Warn is called with what went wrong beside the child. It must not block.
	Warn func(err error)
}

// Result is how a program ended.
type Result struct {
	// Code is the exit code of the child, or 128 and the number of the signal that it died by.
	Code int

	// Lost is why the lease ended before the child did, or nil.
	Lost error
}

var (
	// ErrNotFound: there is no such command.
	ErrNotFound = errors.New("command not found")

	// ErrNotExecutable: there is such a file, and it cannot be executed.
	ErrNotExecutable = errors.New("not executable")
)
