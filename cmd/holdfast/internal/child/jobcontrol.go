//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childStopped continues a child that has stopped, stops this process too, or warns. It is one
// function because the order of the cases counts: each case is what the cases before it leave.
func (s *supervisor) childStopped() {
	foreground := s.tty.foreground()
	wants := s.tty != nil && (s.stopped == syscall.SIGTTIN || s.stopped == syscall.SIGTTOU)
	switch {
	case wants && foreground == s.own:
		s.grantTerminal()
		s.signal(syscall.SIGCONT)
	case wants && foreground == s.pid:
		s.signal(syscall.SIGCONT) // it asked before it got the terminal
	case s.told != nil || s.result.Lost != nil:
		s.defied++
		s.signal(syscall.SIGCONT) // so that it sees the signal that is to end it
	case foreground == s.pid && !resumable() && time.Since(s.continued) > stopTime:
		s.continued = time.Now()
		s.signal(syscall.SIGCONT) // a key has stopped it, and no shell can continue it
	case wants && !resumable():
		s.options.Warn(
			errors.New("the command is stopped: it asks for the terminal in the background"))
	case wants || foreground == s.pid && resumable():
		// Control-Z came to the child alone, or the child of a background job asks for the
		// terminal. The rest of the job is to stop too, as if the child were in its group. That
		// includes this process: see suspend.
		_ = syscall.Kill(0, syscall.SIGTSTP)
	default:
		// Somebody has stopped it on purpose, or it stops itself again and again. Whoever continues
		// it does not know of us, so we run on. We take the terminal, so that the keys that end
		// programs come to us.
		s.retakeTerminal()
		s.options.Warn(
			fmt.Errorf(
				"the command is stopped by %s, and keeps the lock; continue it: kill -CONT %d",
				unix.SignalName(s.stopped), s.pid))
	}
}

// suspend stops the child, and then this process. It returns when somebody has continued this
// process, and then continues the child if the lease has lasted.
func (s *supervisor) suspend() {
	if !resumable() {
		return // the system, too, ignores SIGTSTP for such a group
	}
	if s.reap(); s.ended { // also learn whether somebody has continued it
		return
	}
	if s.stopped == 0 {
		s.signal(syscall.SIGTSTP)
		s.awaitStop()
	}
	if s.ended {
		return
	}
	s.awaitGroup()
	if s.reap(); s.ended {
		return
	}
	// Some in the group may ignore SIGTSTP, but nothing may run while nobody renews the lease.
	s.signal(syscall.SIGSTOP)
	s.awaitStop()
	if s.ended {
		s.signal(syscall.SIGCONT) // what it left in the background runs on
		return
	}
	had := s.retakeTerminal()
	for again := true; again; {
		drain(s.cont)
		drain(s.tstp)
		if err := stopSelf(); err != nil {
			s.options.Warn(fmt.Errorf("holdfast cannot stop itself: %w", err))
		}
		// Take the SIGCONT that has woken us. If it were passed on, it could wake a child that a
		// second control-Z has already stopped. If it does not come, a quick control-Z has made the
		// system drop it.
		select {
		case <-s.cont:
			again = false
		case <-s.tstp:
		case <-time.After(stopTime):
			again = false
		}
	}
	// Err reads the clock, which went on. If the lease is over, supervise ends the child instead.
	if s.options.Err() == nil {
		s.interactive = s.interactive || had
		s.resume()
	}
}

// resume continues the child. It gives the child the terminal if this process has it and the child
// is interactive.
func (s *supervisor) resume() {
	if s.interactive && s.tty.foreground() == s.own {
		s.grantTerminal()
	}
	s.signal(syscall.SIGCONT)
}

// relayInterrupt sends our group the signal of the key that has ended the child. Otherwise a script
// that called holdfast would go on as if nobody had interrupted it. This process catches the
// signal.
func (s *supervisor) relayInterrupt() {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		if s.died == sig && !slices.Contains(s.passed, sig) {
			_ = syscall.Kill(0, sig)
		}
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

// awaitGroup waits until everything in the child's group has stopped, for groupStopTime at most. A
// script stops at once, but a program that it has started may first have to restore the terminal.
// If SIGSTOP came before, that program would finish this after fg, and stop then. awaitGroup does
// not wait for a process that ignores control-Z.
func (s *supervisor) awaitGroup() {
	look := time.NewTicker(groupPoll)
	defer look.Stop()
	deadline := time.Now().Add(groupStopTime)
	for groupRuns(s.pid) && time.Now().Before(deadline) {
		<-look.C
	}
}

// drain takes a signal from c, if there is one.
func drain(c chan os.Signal) {
	select {
	case <-c:
	default:
	}
}

func (s *supervisor) grantTerminal() {
	if err := s.tty.give(s.pid); err != nil {
		s.options.Warn(fmt.Errorf("cannot give the command the terminal: %w", err))
		return
	}
	s.granted = true
}

// retakeTerminal makes our group the foreground group if we have given the terminal to the child.
// It reports whether we had.
func (s *supervisor) retakeTerminal() bool {
	if !s.granted {
		return false
	}
	s.granted = false
	if err := s.tty.give(s.own); err != nil {
		s.options.Warn(fmt.Errorf("cannot take the terminal back from the command: %w", err))
	}
	return true
}

// resumable reports whether a shell with job control can continue us if we stop: the leader of the
// session lives, and our process group is not its own.
func resumable() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != syscall.Getpgrp() &&
		!errors.Is(syscall.Kill(session, 0), syscall.ESRCH)
}
