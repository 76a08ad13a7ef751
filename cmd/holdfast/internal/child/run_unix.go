//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

const (
	// stopTime is how long the child has to stop by itself after control-Z, before it is made to.
	stopTime = time.Second

	// groupPoll is how often it is looked whether anything of a process group is left.
	groupPoll = 10 * time.Millisecond
)

// Run starts the command, and returns when it has ended. It returns an error, and a Result that means nothing, if the
// command could not be started: ErrNotFound or ErrNotExecutable.
//
// All that happens to the child happens on the goroutine that calls Run: signals, its end, the loss of the lease. So no
// signal is ever sent to a process ID that is not the child's any more.
func Run(c Command, o Options) (Result, error) {
	// The parent-death signal is sent when the thread ends that started the child, so it stays here until the child is gone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	s := &supervisor{options: o, own: syscall.Getpgrp()}
	// Before the start, so that nothing is missed. The child does not inherit what is caught.
	s.chld = catch(syscall.SIGCHLD)
	defer signal.Stop(s.chld)
	s.cont = catch(syscall.SIGCONT)
	defer signal.Stop(s.cont)
	if !signal.Ignored(syscall.SIGTSTP) {
		s.tstp = catch(syscall.SIGTSTP)
		defer signal.Stop(s.tstp)
	}
	leash, err := newLeash()
	if err != nil {
		return Result{}, err
	}
	c.Inherit = append(c.Inherit[:len(c.Inherit):len(c.Inherit)], leash.files()...)
	s.pid, err = start(c)
	if err != nil {
		return Result{}, errors.Join(err, leash.close())
	}
	if err := leash.attach(s.pid); err != nil {
		o.Warn(fmt.Errorf("what the command starts is not killed if holdfast is: %w", err))
	}
	s.tty = openTerminal()
	defer s.tty.close()
	if s.tty != nil && !signal.Ignored(syscall.SIGTTOU) {
		// Taking the terminal back, and writing to it meanwhile, is done from the background. Not before the start: the child would
		// inherit it.
		signal.Ignore(syscall.SIGTTOU)
		defer signal.Reset(syscall.SIGTTOU)
	}
	s.supervise()
	s.retakeTerminal()
	if err := leash.close(); err != nil {
		o.Warn(err)
	}
	return s.result, nil
}

// catch returns a channel that tells that the signal came, at least once.
func catch(sig syscall.Signal) chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, sig)
	return c
}

// supervisor looks after one child. Nothing in it is shared between goroutines.
type supervisor struct {
	options Options
	own     int // process group of this process
	pid     int // of the child, and the number of its process group
	tty     *terminal

	chld, cont, tstp chan os.Signal

	result  Result
	ended   bool           // the child is gone, and its process ID free
	stopped syscall.Signal // what the child was stopped by; 0 if it was not, or if we continued it
	granted bool           // the child has been given the terminal
	killed  bool           // SIGKILL has been sent
}

// supervise returns when the child is gone and, after a loss, its process group too.
func (s *supervisor) supervise() {
	lost := s.options.Done()
	var grace <-chan time.Time
	for !s.ended {
		select {
		case <-s.chld:
			if s.reap() {
				s.childStopped()
			}
		case sig := <-s.options.Signals:
			s.signal(sig.(syscall.Signal))
		case <-s.cont:
			s.signal(syscall.SIGCONT)
		case <-s.tstp:
			s.suspend()
		case <-lost:
			lost = nil
			grace = s.lose()
		case <-grace:
			s.kill()
		}
	}
	if lost != nil && s.options.Err() != nil {
		// It ended, and the lease had ended before. Whatever it left behind is to stop as well.
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
		err = syscall.Kill(s.pid, sig) // it has moved to another group
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		s.options.Warn(fmt.Errorf("%v for the command: %w", sig, err))
	}
}

// lose ends the group in an orderly way, and returns when to end it in a disorderly one.
func (s *supervisor) lose() (grace <-chan time.Time) {
	s.result.Lost = s.options.Err()
	d := s.options.Lost(s.result.Lost)
	if d <= 0 {
		s.kill()
		return nil
	}
	s.signal(syscall.SIGTERM)
	s.signal(syscall.SIGCONT) // who is stopped does not get to see SIGTERM
	return time.After(d)
}

func (s *supervisor) kill() {
	s.killed = true
	s.signal(syscall.SIGKILL)
}

// endGroup returns when nothing is left of the child's process group, which has been told to end, or has been killed.
//
// The group may be empty already, and its number free. Systems hand numbers out in a circle, so that another
// group has it before the next look would take as many new processes in a hundredth of a second as there are numbers.
func (s *supervisor) endGroup(grace <-chan time.Time) {
	look := time.NewTicker(groupPoll)
	defer look.Stop()
	for !s.killed && !errors.Is(syscall.Kill(-s.pid, 0), syscall.ESRCH) {
		select {
		case <-look.C:
		case sig := <-s.options.Signals:
			s.signal(sig.(syscall.Signal))
		case <-grace:
			s.kill()
		}
	}
}

// reap takes in what the system reports of the child, and reports whether it has stopped.
func (s *supervisor) reap() (stopped bool) {
	for !s.ended {
		var status syscall.WaitStatus
		pid, err := wait(s.pid, &status)
		switch {
		case err != nil:
			// Nobody else waits for children here, so this is a system that does not keep them.
			s.options.Warn(fmt.Errorf("end of the command: %w", err))
			s.ended, s.result.Code = true, 255
		case pid == 0:
			return stopped
		case status.Exited():
			s.ended, s.result.Code = true, status.ExitStatus()
		case status.Signaled():
			s.ended, s.result.Code = true, ExitCode(status.Signal())
		case status.Stopped():
			s.stopped, stopped = status.StopSignal(), true
		}
	}
	return false
}

// wait asks for news of a child, and returns 0 if there are none.
func wait(pid int, status *syscall.WaitStatus) (int, error) {
	for {
		got, err := syscall.Wait4(pid, status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		if !errors.Is(err, syscall.EINTR) {
			return got, err
		}
	}
}
