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

// start starts the command as the leader of a process group of its own. The caller stays on its thread for as
// long as the child is to live: on Linux the parent whose death counts is that thread.
func start(c Command) (pid int, err error) {
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
	pid, err = syscall.ForkExec(c.Path, c.Args, attr)
	if errors.Is(err, syscall.ENOEXEC) && isText(c.Path) {
		// A script without a #! line: every shell, and execvp, has sh read it.
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", c.Path}, c.Args[1:]...), attr)
	}
	if err != nil {
		return 0, execError(c.Path, err)
	}
	return pid, nil
}

// inheritable has children started from now on keep the file open, until undo is called. The number
// stays what it is: given as a further file of the child it would become 3 or above, where whoever started holdfast may have
// put a file that is meant for the child.
func inheritable(file *os.File) (undo func(), err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	set := func(flags int) (err error) {
		if controlErr := raw.Control(func(fd uintptr) { _, err = unix.FcntlInt(fd, unix.F_SETFD, flags) }); controlErr != nil {
			return controlErr
		}
		return err
	}
	if err := set(0); err != nil {
		return nil, err
	}
	return func() { _ = set(unix.FD_CLOEXEC) }, nil
}

// isText reports whether the file looks like a script: its first line has no zero byte, which is what shells go by.
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
