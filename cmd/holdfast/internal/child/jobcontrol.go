//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childStopped decides what follows from a child that has stopped.
func (s *supervisor) childStopped() {
	if s.tty == nil {
		return // somebody has stopped it on purpose, and will continue it; its lock is kept
	}
	foreground := s.tty.foreground()
	wants := s.stopped == syscall.SIGTTIN || s.stopped == syscall.SIGTTOU
	switch {
	case wants && foreground == s.own:
		s.grantTerminal()
		s.signal(syscall.SIGCONT)
	case wants && foreground == s.pid:
		s.signal(syscall.SIGCONT) // it asked before it was given
	case foreground == s.pid && !resumable():
		s.signal(syscall.SIGCONT) // nobody could
	case wants && !resumable():
		s.options.Warn(errors.New("the command is stopped: it asks for the terminal in the background"))
	case wants || foreground == s.pid:
		// Control-Z came to the child alone, or a background job needs to be brought to the foreground. The rest of the job learns it
		// as it would have if the child were in its group; that includes ourselves: see suspend.
		_ = syscall.Kill(0, syscall.SIGTSTP)
	}
}

// suspend stops the child, and then this process, until somebody continues it.
func (s *supervisor) suspend() {
	if !resumable() {
		return // as the system does with SIGTSTP for such a group
	}
	if s.stopped == 0 {
		s.signal(syscall.SIGTSTP)
		s.awaitStop()
	}
	if s.ended {
		return
	}
	// Also for those in the group that do not heed SIGTSTP: nothing of it may run while nobody keeps the lock.
	s.signal(syscall.SIGSTOP)
	s.awaitStop()
	had := s.retakeTerminal()
	for again := true; again; {
		drain(s.cont)
		drain(s.tstp)
		if err := stopSelf(); err != nil {
			s.options.Warn(fmt.Errorf("SIGSTOP for itself: %w", err))
		}
		// The SIGCONT that has woken us is not to be passed on: it might wake a child that control-Z has stopped again already. If
		// it does not come, control-Z was so quick that the system has withdrawn it.
		select {
		case <-s.cont:
			again = false
		case <-s.tstp:
		case <-time.After(stopTime):
			again = false
		}
	}
	if had && s.tty.foreground() == s.own {
		s.grantTerminal()
	}
	// Err reads the clock, which went on. If the lease is over, supervise is about to see it, and ends the child instead.
	if s.options.Err() == nil {
		s.signal(syscall.SIGCONT)
	}
}

// awaitStop waits until the child has stopped or ended, for stopTime at most.
func (s *supervisor) awaitStop() {
	timeout := time.After(stopTime)
	for s.stopped == 0 && !s.ended {
		select {
		case <-s.chld:
			s.reap()
		case <-timeout:
			return
		}
	}
}

// drain forgets a signal that has come.
func drain(c chan os.Signal) {
	select {
	case <-c:
	default:
	}
}

func (s *supervisor) grantTerminal() {
	if err := s.tty.give(s.pid); err != nil {
		s.options.Warn(fmt.Errorf("terminal for the command: %w", err))
		return
	}
	s.granted = true
}

// retakeTerminal makes our group the foreground group if the child's is, by us, and reports whether it was.
func (s *supervisor) retakeTerminal() bool {
	if !s.granted {
		return false
	}
	s.granted = false
	if err := s.tty.give(s.own); err != nil {
		s.options.Warn(fmt.Errorf("terminal back from the command: %w", err))
	}
	return true
}

// resumable reports whether there is a shell with job control that will continue us if we stop. It put us in
// a process group of our own, so not its own, and it is still there.
func resumable() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != syscall.Getpgrp() && !errors.Is(syscall.Kill(session, 0), syscall.ESRCH)
}
