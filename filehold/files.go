//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// An operation opens, reads and closes its files by plain system calls. Package os would make a
// File with a finalizer for each, and try to register it with the poller.

// The calls that change something are variables. So a test can die, or let another process act,
// before, in and after each of them.
var (
	sysOpen      = syscall.Open
	sysPwrite    = syscall.Pwrite
	sysFtruncate = syscall.Ftruncate
	sysWrite     = syscall.Write
	sysUnlink    = syscall.Unlink
	sysRename    = syscall.Rename
	sysLink      = syscall.Link
	sysMkdir     = syscall.Mkdir
	sysMkfifo    = syscall.Mkfifo
	sysFsync     = syscall.Fsync
	sysFlock     = syscall.Flock
	sysMmap      = syscall.Mmap
)

// interruptible repeats a system call that a signal interrupts.
func interruptible(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}

// onPath makes a system call that concerns the file at path. op names it in an error.
func onPath(op, path string, call func() error) error {
	if err := interruptible(call); err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// openFile opens path without following a symbolic link at its end. Children do not get it.
func openFile(path string, flags int, mode uint32) (fd int, err error) {
	err = onPath("open", path, func() (err error) {
		fd, err = sysOpen(path, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, mode)
		return err
	})
	return fd, err
}

func closeFile(fd int) { syscall.Close(fd) }

// readAt reads at most len(b) bytes; fewer mean that the file ends.
func readAt(fd int, b []byte, offset int64) (n int, err error) {
	for n < len(b) {
		m, err := syscall.Pread(fd, b[n:], offset+int64(n))
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return n, os.NewSyscallError("pread", err)
		case m == 0:
			return n, nil
		default:
			n += m
		}
	}
	return n, nil
}

func writeAt(fd int, b []byte, offset int64) error {
	for len(b) > 0 {
		n, err := sysPwrite(fd, b, offset)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return os.NewSyscallError("pwrite", err)
		case n == 0:
			return io.ErrShortWrite
		default:
			b, offset = b[n:], offset+int64(n)
		}
	}
	return nil
}

// removeFile removes path if it exists.
func removeFile(path string) error {
	err := onPath("unlink", path, func() error { return sysUnlink(path) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// renameFile gives a file another name, in place of what has it.
func renameFile(from, to string) error {
	return onPath("rename", from, func() error { return sysRename(from, to) })
}

// tryFlock takes a file lock, or fails with EWOULDBLOCK.
func tryFlock(fd, how int) error {
	return interruptible(func() error { return sysFlock(fd, how|syscall.LOCK_NB) })
}

func unflock(fd int) {
	interruptible(func() error { return sysFlock(fd, syscall.LOCK_UN) })
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	fd, err := openFile(path, syscall.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer closeFile(fd)
	err = interruptible(func() error { return sysFsync(fd) })
	if err == syscall.EINVAL || err == syscall.ENOTSUP {
		return nil // this file system has no names to sync
	}
	return os.NewSyscallError("fsync", err)
}

// fileID tells files apart, whatever their names.
type fileID struct{ dev, ino uint64 }

func idOf(st *syscall.Stat_t) fileID { return fileID{uint64(st.Dev), uint64(st.Ino)} }

// identify returns what the file at path is, through symbolic links.
func identify(path string) (id fileID, err error) {
	var st syscall.Stat_t
	err = onPath("stat", path, func() error { return syscall.Stat(path, &st) })
	return idOf(&st), err
}

// isNamed reports whether the file at path is that one.
func isNamed(path string, id fileID) (bool, error) {
	now, err := identify(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	return err == nil && now == id, err
}

// statOpen describes an open file.
func statOpen(fd int) (st syscall.Stat_t, err error) {
	err = interruptible(func() error { return syscall.Fstat(fd, &st) })
	return st, os.NewSyscallError("fstat", err)
}

// chmodOpen sets the mode of an open file.
func chmodOpen(fd int, path string, mode uint32) error {
	return onPath("chmod", path, func() error { return syscall.Fchmod(fd, mode) })
}

// namesIn lists a directory, in no order.
func namesIn(path string) ([]string, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// describe names the owner and the mode of a file.
func describe(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "which is gone"
	}
	return fmt.Sprintf("owner %d, mode %v", ownerOf(info), info.Mode())
}

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
