//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// start starts the command as the leader of a process group of its own. If foreground is set, the
// group has the terminal before the command begins. The caller must stay on its thread while the
// child lives: on Linux the end of that thread kills the child.
func start(c Command, foreground bool) (pid int, err error) {
	fork := syscall.ForkExec
	if foreground {
		fork = forkForeground
	}
	for _, file := range c.Inherit {
		again, err := inheritable(file)
		if err != nil {
			return 0, err
		}
		defer again()
	}
	attr := &syscall.ProcAttr{
		Env:   c.Env,
		Files: []uintptr{c.Stdin.Fd(), c.Stdout.Fd(), c.Stderr.Fd()},
		Sys:   systemAttr(&syscall.SysProcAttr{Setpgid: true}),
	}
	pid, err = fork(c.Path, c.Args, attr)
	if errors.Is(err, syscall.ENOEXEC) && isText(c.Path) {
		// A script without a #! line: every shell, and execvp, runs it by sh.
		pid, err = fork("/bin/sh", append([]string{"sh", c.Path}, c.Args[1:]...), attr)
	}
	if err != nil {
		return 0, execError(c.Path, err)
	}
	return pid, nil
}

// inheritable has children that are started before undo keep the file open, under its number.
// ProcAttr.Files would give it a number from 3, where the caller of holdfast may have put a file
// for the child.
func inheritable(file *os.File) (undo func(), err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	set := func(flags int) (err error) {
		if controlErr := raw.Control(func(fd uintptr) {
			_, err = unix.FcntlInt(fd, unix.F_SETFD, flags)
		}); controlErr != nil {
			return controlErr
		}
		return err
	}
	if err := set(0); err != nil {
		return nil, err
	}
	return func() { _ = set(unix.FD_CLOEXEC) }, nil
}

// isText reports whether the file looks like a script to a shell: its first line has no zero byte.
func isText(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, 256)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false
	}
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	return bytes.IndexByte(line, 0) < 0
}
