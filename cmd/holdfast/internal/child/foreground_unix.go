//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// foregroundName is the argv[0] of this program in the child, before it executes the command.
const foregroundName = "holdfast: takes the terminal"

// forkForeground is syscall.ForkExec for a group that has the terminal before the command begins.
// Some programs end if they are in the background when they set the terminal up (top says "failed
// tty set"). Only the child can take the terminal before it executes the command. So the child
// first executes this program, which does that: see init.
func forkForeground(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	self, err := executableSelf()
	if err != nil {
		return 0, err
	}
	reading, writing, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer reading.Close()
	again, err := inheritable(writing)
	if err != nil {
		writing.Close()
		return 0, err
	}
	number := strconv.Itoa(int(writing.Fd()))
	pid, err = syscall.ForkExec(self, append([]string{foregroundName, number, path}, args...), attr)
	again()
	writing.Close()
	if err != nil {
		return 0, err
	}
	// Executing the command closes the pipe, so its end without a byte means success.
	failure, err := io.ReadAll(reading)
	if err != nil || len(failure) == 0 {
		return pid, nil
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	errno, err := strconv.Atoi(string(failure))
	if err != nil {
		return 0, err
	}
	return 0, syscall.Errno(errno)
}

// init continues forkForeground in the child. It is an init function, so that no program that
// imports this package can forget it and start itself without end. It runs on the first thread,
// which has the parent-death signal.
func init() {
	if len(os.Args) < 4 || os.Args[0] != foregroundName {
		return
	}
	number, err := strconv.Atoi(os.Args[1])
	if err != nil {
		os.Exit(exitInternal)
	}
	unix.CloseOnExec(number)
	takeTerminal()
	err = syscall.Exec(os.Args[2], os.Args[3:], os.Environ())
	errno := syscall.EIO
	errors.As(err, &errno)
	_, _ = syscall.Write(number, []byte(strconv.Itoa(int(errno))))
	os.Exit(exitInternal)
}

// exitInternal is an exit code that only forkForeground sees.
const exitInternal = 70

// takeTerminal makes this group the foreground group, if the parent's group is that now. If it
// fails, the child gets the terminal when it asks for it.
func takeTerminal() {
	parent, err := unix.Getpgid(os.Getppid())
	tty := openTerminal()
	defer tty.close()
	if err != nil || tty == nil || tty.foreground() != parent {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // the system sends it to a background process that does this
	defer signal.Reset(syscall.SIGTTOU)
	_ = tty.give(syscall.Getpgrp())
}
