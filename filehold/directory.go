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
	switch {
	case errors.Is(err, syscall.EROFS):
		e.Permanent = true // for every user
	case errors.Is(err, fs.ErrPermission):
		e.Permanent = true
		e.Err = fmt.Errorf("not writable for user %d (%s): %w", os.Geteuid(), describe(d.path), err)
	}
	return e
}

// create makes a new file. It fails with fs.ErrExist if there is one.
func (d *directory) create(path string) (int, error) {
	fd, err := openFile(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL, d.fileMode)
	if err != nil || !d.shared {
		return fd, err
	}
	// The umask would keep other users out.
	if err = chmodOpen(fd, path, d.fileMode); err != nil {
		closeFile(fd)
	}
	return fd, err
}

// makePipe makes a named pipe.
func (d *directory) makePipe(path string) error {
	err := onPath("mkfifo", path, func() error { return sysMkfifo(path, d.fileMode) })
	if err != nil {
		return err
	}
	return d.permit(path, syscall.S_IFIFO, d.fileMode)
}

// makeDir makes a directory, if it is missing.
func (d *directory) makeDir(path string) error {
	err := onPath("mkdir", path, func() error { return sysMkdir(path, d.dirMode&0o777) })
	switch {
	case err == nil:
		return d.permit(path, syscall.S_IFDIR, d.dirMode)
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return err
}

// permit gives the file or directory at path its permissions, if it is still of that kind. Another
// user of the directory may have put a link in its place, and permit must not change what the link
// leads to.
func (d *directory) permit(path string, kind, mode uint32) error {
	if !d.shared {
		return nil
	}
	fd, err := openFile(path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer closeFile(fd)
	st, err := statOpen(fd)
	switch {
	case err != nil:
		return err
	case uint32(st.Mode)&syscall.S_IFMT != kind:
		return &fs.PathError{Op: "chmod", Path: path, Err: fs.ErrPermission}
	}
	return chmodOpen(fd, path, mode)
}

// publish makes a file with that content in one step. It fails with fs.ErrExist if there is one.
func (d *directory) publish(temporary, path string, content []byte, durable bool) error {
	if err := d.makeFile(temporary, content, durable); err != nil {
		return err
	}
	defer removeFile(temporary)
	return onPath("link", path, func() error { return sysLink(temporary, path) })
}

// makeFile makes a file with that content, and replaces one that was left behind.
func (d *directory) makeFile(path string, content []byte, durable bool) error {
	if err := removeFile(path); err != nil {
		return err
	}
	fd, err := d.create(path)
	if err != nil {
		return err
	}
	defer closeFile(fd)
	if err := writeAt(fd, content, 0); err != nil || !durable {
		return err
	}
	return os.NewSyscallError("fsync", interruptible(func() error { return sysFsync(fd) }))
}
