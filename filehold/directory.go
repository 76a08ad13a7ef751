//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// Names in the directory.
const (
	fenceName   = "fence"
	keysName    = "keys"
	membersName = "members"
)

// directory is the lock directory, opened.
type directory struct {
	path    string // absolute, without symbolic links
	keys    string // with a slash at the end, like members and fence
	members string
	fence   string

	shared   bool
	fileMode uint32 // of files, named pipes included
	dirMode  uint32 // of directories

	boot  bootMark  // zero where nothing tells one boot from another
	clock clockMark // of our clock
	known bool      // the marker was there
}

// fail returns the error of a directory that a person has to change before it serves.
func (d *directory) fail(format string, args ...any) error {
	return &driver.Error{Node: d.path, Permanent: true, Err: fmt.Errorf(format, args...)}
}

// wrap turns any error into one of the driver contract. Permission errors are permanent.
func (d *directory) wrap(err error) error {
	var e *driver.Error
	if errors.As(err, &e) {
		return err
	}
	e = &driver.Error{Node: d.path, Err: err}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		e.Permanent = true
		e.Err = fmt.Errorf("not writable for user %d (%s): %w", os.Geteuid(), describe(d.path), err)
	}
	return e
}

// create makes a new file. It fails with fs.ErrExist if there is one.
func (d *directory) create(path string, flags int) (int, error) {
	fd, err := openFile(path, flags|syscall.O_CREAT|syscall.O_EXCL, d.fileMode)
	if err != nil {
		return -1, err
	}
	if d.shared { // the umask would keep other users out
		err = interruptible(func() error { return syscall.Fchmod(fd, d.fileMode) })
	}
	if err != nil {
		closeFile(fd)
		removeFile(path)
		return -1, &fs.PathError{Op: "chmod", Path: path, Err: err}
	}
	return fd, nil
}

// makePipe makes a named pipe.
func (d *directory) makePipe(path string) error {
	return d.permit("mkfifo", path, d.fileMode,
		interruptible(func() error { return sysMkfifo(path, d.fileMode) }))
}

// makeDir makes a directory, if it is missing.
func (d *directory) makeDir(path string) error {
	err := interruptible(func() error { return sysMkdir(path, d.dirMode&0o777) })
	if err == syscall.EEXIST {
		return nil
	}
	return d.permit("mkdir", path, d.dirMode, err)
}

// permit gives a new file its permissions, unless err says that there is none.
func (d *directory) permit(op, path string, mode uint32, err error) error {
	if err == nil && d.shared {
		op, err = "chmod", interruptible(func() error { return syscall.Chmod(path, mode) })
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// install makes a file with that content in one step, and replaces one of that name.
func (d *directory) install(temporary, path string, content []byte) error {
	if err := d.makeFile(temporary, content, false); err != nil {
		return err
	}
	return renameFile(temporary, path)
}

// makeFile makes a file with that content, and replaces one that was left behind.
func (d *directory) makeFile(path string, content []byte, durable bool) error {
	if err := removeFile(path); err != nil {
		return err
	}
	fd, err := d.create(path, syscall.O_WRONLY)
	if err != nil {
		return err
	}
	defer closeFile(fd)
	if err := writeAt(fd, content, 0); err != nil || !durable {
		return err
	}
	return os.NewSyscallError("fsync", interruptible(func() error { return sysFsync(fd) }))
}
