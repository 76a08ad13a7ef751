//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// The files of an operation are opened, read and closed by plain system calls: package os would make a File with
// a finalizer of each, and try to register it with the poller.

// The calls that change something are variables, so that tests can die before, in and after each of them.
var (
	sysOpen   = syscall.Open
	sysPwrite = syscall.Pwrite
	sysUnlink = syscall.Unlink
	sysRename = syscall.Rename
	sysMkdir  = syscall.Mkdir
	sysMkfifo = syscall.Mkfifo
	sysFsync  = syscall.Fsync
	sysFlock  = syscall.Flock
)

// interruptible makes a system call until it is not interrupted by a signal.
func interruptible(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}

// openFile opens path without following a symbolic link at its end. Children do not get it.
func openFile(path string, flags int, mode uint32) (fd int, err error) {
	for {
		fd, err = sysOpen(path, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, mode)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
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
	err := interruptible(func() error { return sysUnlink(path) })
	if err != nil && err != syscall.ENOENT {
		return &fs.PathError{Op: "unlink", Path: path, Err: err}
	}
	return nil
}

// renameFile gives a file another name, in place of what has it.
func renameFile(from, to string) error {
	err := interruptible(func() error { return sysRename(from, to) })
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// syncFile makes the content of a file durable.
func syncFile(fd int) error {
	return os.NewSyscallError("fsync", interruptible(func() error { return sysFsync(fd) }))
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
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems cannot, and say so; they have nothing to sync.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// fileID tells files apart, whatever their names.
type fileID struct{ dev, ino uint64 }

func (id *fileID) set(st *syscall.Stat_t) { id.dev, id.ino = uint64(st.Dev), uint64(st.Ino) }

// identify returns what the file at path is, through symbolic links.
func identify(path string) (id fileID, err error) {
	var st syscall.Stat_t
	if err := interruptible(func() error { return syscall.Stat(path, &st) }); err != nil {
		return fileID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	id.set(&st)
	return id, nil
}

// identifyOpen returns what an open file is, and whether it still has a name.
func identifyOpen(fd int) (id fileID, named bool, err error) {
	var st syscall.Stat_t
	if err := interruptible(func() error { return syscall.Fstat(fd, &st) }); err != nil {
		return fileID{}, false, os.NewSyscallError("fstat", err)
	}
	id.set(&st)
	return id, st.Nlink > 0, nil
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

// isTemporary reports whether a file of that name is never in force: it was left by a process that died.
func isTemporary(name string) bool { return strings.HasSuffix(name, temporarySuffix) }

const temporarySuffix = ".tmp"
