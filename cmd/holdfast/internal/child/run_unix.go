//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopTime is how long the child may take to stop by itself after control-Z.
	stopTime = time.Second

	// groupStopTime is how long programs that the child has started may take to stop, if they catch
	// control-Z. On a busy machine a second is not enough for a program to restore the terminal.
	groupStopTime = 5 * time.Second

	// groupPoll is the time between two looks at what is left of a process group.
	groupPoll = 10 * time.Millisecond
)

// Run starts the command and waits for its end, and after a loss for the end of its process group.
// It returns an error and no Result if the command cannot be started: ErrNotFound,
// ErrNotExecutable, or an error of the system.
//
// The goroutine that calls Run does everything to the child: it sends signals, reaps it, and
// handles the loss of the lease. So it sends no signal to a process ID that is not the child's any
// more.
func Run(c Command, o Options) (Result, error) {
	s := &supervisor{options: o, own: syscall.Getpgrp()}
	// This comes before the start, so that no signal is missed. The child does not inherit caught
	// signals.
	s.chld = catch(syscall.SIGCHLD)
	s.cont = catch(syscall.SIGCONT)
	if !signal.Ignored(syscall.SIGTSTP) {
		s.tstp = catch(syscall.SIGTSTP)
	}
	if o.Again {
		defer s.uncatch()
	}
	// The parent-death signal is sent when the thread that started the child ends. So this
	// goroutine keeps its thread until the child is gone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	leash, err := newLeash()
	if err != nil {
		return Result{}, fmt.Errorf("%q cannot be started now: %w", c.Path, err)
	}
	c.Inherit = append(c.Inherit[:len(c.Inherit):len(c.Inherit)], leash.files()...)
	s.tty = openTerminal()
	defer s.tty.close()
	s.interactive = s.tty != nil && onTerminal(c.Stdin) && onTerminal(c.Stdout)
	s.pid, err = start(c, s.interactive && s.tty.foreground() == s.own)
	if err != nil {
		return Result{}, errors.Join(err, leash.close())
	}
	s.waitFor = s.pid
	if getsOrphans() {
		s.waitFor = -1
	}
	s.granted = s.tty.foreground() == s.pid
	if err := leash.attach(s.pid); err != nil {
		o.Warn(fmt.Errorf("if holdfast is killed, programs that the command has started run on: %w", err))
	}
	if s.tty != nil && !signal.Ignored(syscall.SIGTTOU) {
		// This process takes the terminal back, and writes to it, from the background. The signal
		// is ignored only after the start: the child would inherit that.
		signal.Ignore(syscall.SIGTTOU)
		defer signal.Reset(syscall.SIGTTOU)
	}
	s.supervise()
	if s.retakeTerminal() {
		s.relayInterrupt()
	}
	if err := leash.close(); err != nil {
		o.Warn(err)
	}
	return s.result, nil
}

// catch returns a channel that has a signal if one or more came. The signal stays caught, except
// with Options.Again: this process ends soon after the child, and signal.Stop takes several
// switches of threads.
func catch(sig syscall.Signal) chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, sig)
	return c
}

// uncatch gives the signals back that Run has caught.
func (s *supervisor) uncatch() {
	signal.Stop(s.chld)
	signal.Stop(s.cont)
	if s.tstp != nil {
		signal.Stop(s.tstp)
	}
}

// supervisor supervises one child. One goroutine uses it.
type supervisor struct {
	options Options
	own     int // process group of this process
	pid     int // of the child and of its process group
	tty     *terminal
	waitFor int // the pid for wait4: the child's, or -1 for any

	interactive bool // stdin and stdout of the child are our terminal

	chld, cont, tstp chan os.Signal

	result  Result
	ended   bool           // the child was reaped, and its process ID is free
	died    syscall.Signal // the signal that killed it; 0 if it exited
	stopped syscall.Signal // the signal that has stopped the child; 0 if it is not stopped
	granted bool           // the child has the terminal, from us
	killed  bool           // SIGKILL has been sent

	continued time.Time // when we last continued a child that a key had stopped

	passed []syscall.Signal // the signals that were passed on
	// fires when the grace of a child that was told to end is over; nil if it was not told
	told   <-chan time.Time
	must   syscall.Signal // the signal after which the child must end; 0 if none came
	defied int            // how often the child has stopped since it was told to end
}

// supervise returns when the child is gone, and after a loss its process group as well.
func (s *supervisor) supervise() {
	lost := s.options.Done()
	var grace <-chan time.Time
	for !s.ended {
		// Signals come first. If the child stops itself while a signal is to end it, the signal
		// wins. Otherwise this process would stop too, with the signal unread.
		select {
		case sig := <-s.options.Signals:
			s.pass(sig.(syscall.Signal))
			continue
		default:
		}
		select {
		case <-s.chld:
			if s.reap() {
				s.childStopped()
			}
		case sig := <-s.options.Signals:
			s.pass(sig.(syscall.Signal))
		case <-s.cont:
			s.resume()
		case <-s.tstp:
			s.suspend()
		case <-s.told:
			s.endDefiant()
		case <-lost:
			lost = nil
			grace = s.lose()
		case <-grace:
			s.kill()
		}
	}
	if lost != nil && s.options.Err() != nil {
		// The lease ended before the child did. What the child left in the background must end too.
		grace = s.lose()
	}
	if s.result.Lost != nil {
		s.endGroup(grace)
	}
}

// signal sends a signal to the child's process group.
func (s *supervisor) signal(sig syscall.Signal) {
	if sig == syscall.SIGCONT {
		s.stopped = 0
	}
	err := syscall.Kill(-s.pid, sig)
	if errors.Is(err, syscall.ESRCH) && !s.ended {
		err = syscall.Kill(s.pid, sig) // the child has moved to another group
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		s.options.Warn(fmt.Errorf("cannot send %v to the command: %w", unix.SignalName(sig), err))
	}
}

// pass passes a signal on. A stopped child does not see a signal that is to end it. So it is
// continued, and again each time that it stops until the grace is over: see childStopped.
func (s *supervisor) pass(sig syscall.Signal) {
	ends := slices.Contains(ending, sig)
	must := s.mustEnd(sig) && s.must == 0
	if must {
		s.must = sig
	}
	if must || ends && s.told == nil {
		s.told = time.After(s.options.Grace) // before childStopped, which asks for it
	}
	if s.reap() { // learn the present state of the child
		s.childStopped()
	}
	if s.ended {
		return
	}
	s.signal(sig)
	s.passed = append(s.passed, sig)
	if ends && s.stopped != 0 {
		s.defied++
		s.resume()
	}
}

// mustEnd reports whether the child must end after the signal. SIGQUIT has some programs show what
// they do and go on, and SIGHUP has services read their settings again.
func (s *supervisor) mustEnd(sig syscall.Signal) bool {
	return sig == syscall.SIGTERM || sig == syscall.SIGINT ||
		sig == syscall.SIGHUP && !s.options.Reloads
}

// endDefiant runs when the grace of a child that was told to end is over. It kills a child that
// must end. After another signal it kills a child that stops itself each time it is continued, but
// not one that runs.
func (s *supervisor) endDefiant() {
	// On a busy machine it may have stopped, or ended, within the grace and unseen.
	if s.reap() {
		s.childStopped()
	}
	if s.ended {
		return
	}
	if s.must != 0 && s.options.Grace > 0 {
		s.options.Warn(fmt.Errorf("the command has not ended within %v of %s, and gets SIGKILL",
			s.options.Grace, unix.SignalName(s.must)))
	}
	if s.must != 0 || s.defied > 1 {
		s.kill()
	}
	s.told, s.defied = nil, 0
}

// lose asks the group to end. It returns a channel that fires when the group must be killed, or nil
// if it kills the group at once.
func (s *supervisor) lose() (grace <-chan time.Time) {
	s.result.Lost = s.options.Err()
	d := s.options.Lost(s.result.Lost)
	if d <= 0 {
		s.kill()
		return nil
	}
	s.signal(syscall.SIGTERM)
	s.signal(syscall.SIGCONT) // a stopped process does not see SIGTERM
	for _, group := range s.others() {
		_ = syscall.Kill(-group, syscall.SIGTERM)
		_ = syscall.Kill(-group, syscall.SIGCONT)
	}
	return time.After(d)
}

func (s *supervisor) kill() {
	s.killed = true
	s.signal(syscall.SIGKILL)
	s.killOthers()
}

// maxPasses bounds how often killOthers looks again: a program may make new groups for ever.
const maxPasses = 100

// killOthers kills the processes that have left the child's group but not its session. A killed
// process makes no new group, so killOthers is done when it finds none.
func (s *supervisor) killOthers() {
	done := []int{s.own, s.pid}
	for range maxPasses {
		groups := otherGroups(done...)
		if len(groups) == 0 {
			return
		}
		for _, group := range groups {
			_ = syscall.Kill(-group, syscall.SIGKILL) // fails for another user's
		}
		done = append(done, groups...)
	}
}

// others returns the groups of processes that have left the child's group but not its session.
func (s *supervisor) others() []int { return otherGroups(s.own, s.pid) }

// endGroup returns when nothing is left of the child's process group and of others, or when they
// have been killed. They have been told to end before.
//
// The group may be empty already, and its number free. A system hands out all other numbers before
// it uses one again. So another group could only get the number if all numbers were used up between
// two looks, in 10 ms.
func (s *supervisor) endGroup(grace <-chan time.Time) {
	look := time.NewTicker(groupPoll)
	defer look.Stop()
	for !s.killed && (!errors.Is(syscall.Kill(-s.pid, 0), syscall.ESRCH) || len(s.others()) > 0) {
		select {
		case <-look.C:
			s.reapOrphans()
		case sig := <-s.options.Signals:
			s.signal(sig.(syscall.Signal))
		case <-grace:
			s.kill()
		}
	}
}

// reap takes the news of the child from the system. It reports whether the child has stopped.
func (s *supervisor) reap() (stopped bool) {
	for !s.ended {
		var status syscall.WaitStatus
		pid, err := wait(s.waitFor, &status)
		switch {
		case pid > 0 && pid != s.pid: // an orphan, reaped by this
		case err != nil:
			// Nobody else waits for children here, so this system discards their exit codes.
			s.options.Warn(fmt.Errorf("cannot learn how the command ended: %w", err))
			s.ended, s.result.Code = true, 255
		case pid == 0:
			return stopped
		case status.Exited():
			s.ended, s.result.Code = true, status.ExitStatus()
		case status.Signaled():
			s.ended, s.died, s.result.Code = true, status.Signal(), ExitCode(status.Signal())
		case status.Stopped():
			s.stopped, stopped = status.StopSignal(), true
		case isContinued(status):
			s.stopped, stopped = 0, false
		}
	}
	return false
}

// reapOrphans reaps our orphans that have ended. Until then they count as part of their group.
func (s *supervisor) reapOrphans() {
	var status syscall.WaitStatus
	for s.waitFor < 0 {
		if pid, err := wait(s.waitFor, &status); err != nil || pid == 0 {
			return
		}
	}
}

// wait asks for news of a child without blocking. It returns 0 if there are none.
func wait(pid int, status *syscall.WaitStatus) (int, error) {
	for {
		got, err := syscall.Wait4(pid, status, syscall.WNOHANG|changes, nil)
		if !errors.Is(err, syscall.EINTR) {
			return got, err
		}
	}
}
