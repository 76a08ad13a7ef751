//go:build unix

package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startBound is how long a server has to answer for the first time. On a busy machine a database
// takes seconds.
const startBound = 2 * time.Minute

// Process is a server's process. The exported fields are set before the first Run.
type Process struct {
	Path  string              // the program
	Args  []string            // its arguments
	Env   []string            // its environment, besides that of this process
	Dir   string              // its own directory, with its data
	User  *syscall.Credential // who runs it; nil for who runs the test
	Fatal syscall.Signal      // what ends it without letting it write anything; 0 for SIGKILL
	Ready func() error        // returns nil as soon as the server answers

	mu     sync.Mutex
	cmd    *exec.Cmd     // of the last Run
	exited chan struct{} // closed when it has ended
	output bytes.Buffer  // of all Runs
}

// Command returns a command that runs as the server does: as the same user, and in its directory.
func (p *Process) Command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.User}
	return cmd
}

// Run starts the process on its data and waits until it answers. It must not be running. If it ends
// instead, or does not answer for two minutes, the error has its log.
func (p *Process) Run() error {
	cmd := p.Command(p.Path, p.Args...)
	cmd.Stdout = &lockedWriter{p: p}
	cmd.Stderr = cmd.Stdout
	if err := StartProcess(cmd); err != nil {
		return err
	}
	exited := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.exited = cmd, exited
	p.mu.Unlock()
	go func() {
		cmd.Wait()
		close(exited)
	}()
	bound := time.NewTimer(startBound)
	defer bound.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		// This comes first. Otherwise another server that has the port by now could be taken for
		// this one.
		select {
		case <-exited:
			return fmt.Errorf("%s ended: %v: %s", p.name(), cmd.ProcessState, p.Log())
		default:
		}
		err := p.Ready()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-exited:
		case <-bound.C:
			return fmt.Errorf("%s does not answer within %v: %w; its log: %s", p.name(), startBound,
				err, p.Log())
		}
	}
}

func (p *Process) name() string { return filepath.Base(p.Path) }

type lockedWriter struct{ p *Process }

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.p.output.Write(b)
}

// Log returns what the server has said so far, in all its Runs.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// signal sends the signal, and returns a channel that is closed when the process has ended; nil if
// it was never started.
func (p *Process) signal(s syscall.Signal) (exited <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	p.cmd.Process.Signal(s)
	return p.exited
}

// Freeze stops the process: connections stay open and nothing is answered. The signal goes to one
// of its threads. Until that thread runs, the others may go on, so Freeze waits until all have
// stopped.
func (p *Process) Freeze() {
	if p.signal(syscall.SIGSTOP) == nil {
		return
	}
	p.mu.Lock()
	pid := p.cmd.Process.Pid
	p.mu.Unlock()
	awaitStop(pid)
}

// Freeze is [Process.Freeze] for a child that is not a server.
func Freeze(child *os.Process) {
	child.Signal(syscall.SIGSTOP)
	awaitStop(child.Pid)
}

// Thaw undoes Freeze.
func (p *Process) Thaw() { p.signal(syscall.SIGCONT) }

// Kill ends the process without letting it write anything, and waits until it is gone. It does
// nothing if the process does not run.
func (p *Process) Kill() {
	fatal := p.Fatal
	if fatal == 0 {
		fatal = syscall.SIGKILL
	}
	exited := p.signal(fatal)
	if exited == nil {
		return
	}
	if fatal != syscall.SIGKILL {
		p.Thaw() // no other signal ends a process that is frozen
	}
	<-exited
}

// Shutdown ends the process in an orderly way and waits until it is gone, for Patience at most.
func (p *Process) Shutdown() error {
	exited := p.signal(syscall.SIGTERM)
	if exited == nil {
		return nil
	}
	select {
	case <-exited:
		return nil
	case <-time.After(Patience):
		return fmt.Errorf("%s does not stop within %v", p.name(), Patience)
	}
}

// Remove kills the process and removes its directory.
func (p *Process) Remove() error {
	p.Kill()
	return os.RemoveAll(p.Dir)
}

// EndWith kills the process when the test is over, and shows its log if the test has failed. name
// returns the name of the server for the log.
func (p *Process) EndWith(t testing.TB, name func() string) {
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name(), p.Log())
		}
	})
}

// Copy copies a file into the server's directory, where nobody but the server's user reads it, and
// returns the copy's path.
func (p *Process) Copy(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	copied := filepath.Join(p.Dir, filepath.Base(path))
	if err := os.WriteFile(copied, data, 0o600); err != nil || p.User == nil {
		return copied, err
	}
	return copied, os.Chown(copied, int(p.User.Uid), int(p.User.Gid))
}

// Find returns the path of a program: the first in the PATH, or else in the directories, which may
// be patterns. The error says what to install.
func Find(program, install string, dirs ...string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, program))
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%s is not installed: install Debian's %s, or put one into the PATH: %w",
		program, install, exec.ErrNotFound)
}

// Prepare makes a directory for a server that several tests share. Remove removes it. Database
// servers refuse root, so if this process is root, the server and its commands run as the account,
// or as nobody if there is no such account.
func Prepare(account string) (*Process, error) {
	// It is not in a test's own directory, which only this user may enter, and whose name may be
	// too long for a socket. It is not always in $TMPDIR either, because root's may be closed to
	// the account.
	parent, root := "", os.Geteuid() == 0
	if root {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "holdfast-"+account)
	if err != nil {
		return nil, err
	}
	p := &Process{Dir: dir}
	if !root {
		return p, nil
	}
	p.Env = []string{"TMPDIR=" + dir}
	if p.User, err = credential(account); err == nil {
		err = os.Chown(dir, int(p.User.Uid), int(p.User.Gid))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}
