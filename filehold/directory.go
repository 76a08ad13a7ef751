//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// Names in the directory.
const (
	markerName  = "holdfast"
	mutexName   = "mutex"
	fenceName   = "fence"
	keysName    = "keys"
	membersName = "members"
)

const (
	layout       = 1
	markerPrefix = "holdfast lock directory, layout "
	markerText   = markerPrefix + "1\n\n" +
		"Processes that use package filehold of Holdfast keep their locks here.\n" +
		"Do not remove single files: whoever holds a lock would lose it.\n"
)

// directory is the lock directory, opened.
type directory struct {
	path    string // absolute, without symbolic links
	keys    string // with a slash at the end, like members
	members string

	shared   bool
	fileMode uint32 // of files, named pipes included
	dirMode  uint32 // of directories

	mutex mutex
	fence int // descriptor
	boot  bootMark
	// bootKnown is false where nothing tells one boot from another.
	bootKnown bool
}

// networkFSSource is replaced by tests, which have no network file system.
var networkFSSource = networkFS

// fail returns the error of a directory that has to be changed by somebody before it serves.
func (d *directory) fail(format string, args ...any) error {
	return &driver.Error{Node: d.path, Permanent: true, Err: fmt.Errorf(format, args...)}
}

// wrap returns an error about the directory for a failed system call. What the user may not do, waiting does not mend.
func (d *directory) wrap(err error) error {
	e := &driver.Error{Node: d.path, Err: err}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		e.Permanent = true
		e.Err = fmt.Errorf("not writable for user %d (%s): %w", os.Geteuid(), describe(d.path), err)
	}
	return e
}

// describe says whose a file is.
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

// openDirectory finds or makes the directory, checks that it will do, and returns with its mutex held. stop ends the
// wait for the mutex.
func openDirectory(dir string, cfg config, stop <-chan struct{}) (*directory, error) {
	d := &directory{path: dir, shared: cfg.shared, mutex: mutex{fd: -1}, fence: -1}
	if err := d.find(dir); err != nil {
		return nil, err
	}
	d.keys = d.path + "/" + keysName + "/"
	d.members = d.path + "/" + membersName + "/"
	if err := d.checkTrust(); err != nil {
		return nil, err
	}
	if name := networkFSSource(d.path); name != "" {
		return nil, d.fail("is on a network file system (%s): its file locks do not free what a dead process held; use a local directory", name)
	}
	if err := d.checkContent(); err != nil {
		return nil, err
	}
	if d.boot, d.bootKnown = bootMarkSource(); !d.bootKnown {
		d.boot = bootMark{}
	}
	if err := d.lockMutex(stop); err != nil {
		return nil, err
	}
	if err := d.furnish(); err != nil {
		d.mutex.unlock()
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *directory) close() {
	if d.mutex.fd >= 0 {
		closeFile(d.mutex.fd)
		d.mutex.fd = -1
	}
	if d.fence >= 0 {
		closeFile(d.fence)
		d.fence = -1
	}
}

// find makes the directory if only itself is missing, and sets its true path: who renames a symbolic link later must
// not split those who came by it.
func (d *directory) find(dir string) error {
	if dir == "" {
		return d.fail("directory \"\": name one")
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return d.fail("directory %q: %w", dir, err)
	}
	d.path = path
	made := false
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		switch err := os.Mkdir(path, 0o700); {
		case err == nil:
			made = true
		case errors.Is(err, fs.ErrExist):
			// Another process was faster.
		case errors.Is(err, fs.ErrNotExist):
			return d.fail("does not exist, and cannot be created since %s does not exist either: %w", filepath.Dir(path), err)
		default:
			return d.fail("does not exist, and cannot be created by user %d in %s (%s): %w", os.Geteuid(), filepath.Dir(path), describe(filepath.Dir(path)), err)
		}
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return d.fail("cannot be found: %w", err)
	}
	d.path = path
	if made {
		// The fence will be durable only if the way to it is.
		if err := syncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrPermission) {
			return d.wrap(err)
		}
	}
	return nil
}

// checkTrust refuses a directory in which somebody unexpected could take locks away.
func (d *directory) checkTrust() error {
	info, err := os.Stat(d.path)
	if err != nil {
		return d.fail("cannot be examined: %w", err)
	}
	if !info.IsDir() {
		return d.fail("is not a directory (mode %v): %w", info.Mode(), syscall.ENOTDIR)
	}
	mode, owner := info.Mode(), ownerOf(info)
	if !d.shared && owner != os.Geteuid() {
		return d.fail("belongs to user %d, and this process runs as user %d: use a directory of your own, or say WithSharedDirectory if it is meant to be shared: %w",
			owner, os.Geteuid(), fs.ErrPermission)
	}
	if mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return d.fail("can be written to by everybody and is not sticky (mode %v), so anybody could replace what is in it: chmod o-w or chmod +t: %w",
			mode, fs.ErrPermission)
	}
	d.fileMode, d.dirMode = 0o600|keepBit, 0o700
	if d.shared {
		d.fileMode = uint32(mode.Perm()&0o666) | keepBit
		// Not sticky: each user has to be able to remove what another has left behind.
		d.dirMode = uint32(mode.Perm())
		if mode&fs.ModeSetgid != 0 {
			d.dirMode |= syscall.S_ISGID
		}
	}
	return nil
}

// checkContent refuses a directory that is not ours. Nothing has been written so far.
func (d *directory) checkContent() error {
	if known, err := d.checkMarker(); known || err != nil {
		return err
	}
	names, err := namesIn(d.path)
	if err != nil {
		return d.wrap(err)
	}
	for _, name := range names {
		switch name {
		case mutexName, fenceName, keysName, membersName:
		default:
			if isTemporary(name) {
				continue
			}
			// The marker comes last, so a list that was read before it appeared may hold everything else.
			if known, err := d.checkMarker(); known || err != nil {
				return err
			}
			return d.fail("holds other files (%q) and is no lock directory: use one that is empty or does not exist", name)
		}
	}
	return nil
}

// checkMarker reports whether the directory is marked as ours, and fails if its layout is not the one that we know.
func (d *directory) checkMarker() (known bool, err error) {
	marker, err := os.ReadFile(d.path + "/" + markerName)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, d.wrap(err)
	}
	line, _, _ := bytes.Cut(marker, []byte("\n"))
	number, found := strings.CutPrefix(string(line), markerPrefix)
	if !found {
		return false, d.fail("holds a file %q that does not say %q: it is no lock directory, or damaged", markerName, markerPrefix)
	}
	if number != strconv.Itoa(layout) {
		return false, d.fail("has layout %q, of another version: this one knows layout %d", number, layout)
	}
	return true, nil
}

// lockMutex opens the mutex and takes it. A mutex that was removed while we waited for it is no use.
func (d *directory) lockMutex(stop <-chan struct{}) error {
	path := d.path + "/" + mutexName
	for range 100 {
		fd, err := openFile(path, syscall.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			// Separately: in a sticky directory, Linux lets nobody open another's file with O_CREAT.
			fd, err = d.create(path, syscall.O_RDWR)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		if err != nil {
			return d.wrap(err)
		}
		d.mutex.fd = fd
		if err := d.mutex.lock(stop); err != nil {
			err = d.stalled(err)
			d.close()
			return d.wrap(err)
		}
		mine, _, err := identifyOpen(fd)
		if err == nil {
			if named, err := identify(path); err == nil && named == mine {
				return nil
			}
		}
		d.close()
	}
	return d.wrap(errors.New("its mutex does not stay in place"))
}

// stalled explains why the mutex could not be had.
func (d *directory) stalled(err error) error {
	if pid := flockHolder(d.mutex.fd); pid != 0 {
		return fmt.Errorf("kept locked by process %d, which may be stopped: %w", pid, err)
	}
	return fmt.Errorf("kept locked by another process, which may be stopped: %w", err)
}

// create makes a new file. It fails with fs.ErrExist if there is one.
func (d *directory) create(path string, flags int) (int, error) {
	fd, err := openFile(path, flags|syscall.O_CREAT|syscall.O_EXCL, d.fileMode)
	if err != nil {
		return -1, err
	}
	if d.shared {
		// Explicitly: the umask would keep the others out.
		if err := interruptible(func() error { return syscall.Fchmod(fd, d.fileMode) }); err != nil {
			closeFile(fd)
			removeFile(path)
			return -1, &fs.PathError{Op: "chmod", Path: path, Err: err}
		}
	}
	return fd, nil
}

// makePipe makes a named pipe.
func (d *directory) makePipe(path string) error {
	err := interruptible(func() error { return sysMkfifo(path, d.fileMode&0o777) })
	if err == nil && d.shared {
		err = interruptible(func() error { return syscall.Chmod(path, d.fileMode&0o777) })
	}
	if err != nil {
		return &fs.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return nil
}

func (d *directory) makeDir(path string) error {
	err := interruptible(func() error { return sysMkdir(path, d.dirMode&0o777) })
	if err == nil && d.shared {
		err = interruptible(func() error { return syscall.Chmod(path, d.dirMode) })
	}
	if err != nil && err != syscall.EEXIST {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// furnish makes what is missing, and opens the fence. The mutex is held. The marker comes last: while it
// is missing nothing is in force, and whoever dies on the way leaves the rest to the next.
func (d *directory) furnish() error {
	known, err := d.checkMarker()
	if err != nil {
		return err
	}
	if !known {
		if err := d.makeFence(); err != nil {
			return d.wrap(err)
		}
	}
	// Not known by now means that they may be missing; known, that somebody may have removed them, which costs no more
	// than the locks that were in them.
	for _, path := range []string{d.keys, d.members} {
		path = path[:len(path)-1]
		if err := d.makeDir(path); err != nil {
			return d.wrap(err)
		}
		info, err := os.Lstat(path)
		if err != nil {
			return d.wrap(err)
		}
		if !info.IsDir() {
			return d.fail("its %s is not a directory (mode %v): %w", filepath.Base(path), info.Mode(), syscall.ENOTDIR)
		}
		if !d.shared && ownerOf(info) != os.Geteuid() {
			return d.fail("its %s belongs to user %d, and this process runs as user %d: %w", filepath.Base(path), ownerOf(info), os.Geteuid(), fs.ErrPermission)
		}
	}
	if !known {
		if err := d.install(markerName, []byte(markerText)); err != nil {
			return d.wrap(err)
		}
	}
	d.fence, err = openFile(d.path+"/"+fenceName, syscall.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return d.fail("its file %q is gone, so tokens could go back: put it back, or remove the whole directory to begin anew: %w", fenceName, err)
	}
	if err != nil {
		return d.wrap(err)
	}
	return nil
}

// install makes a durable file with that content, in one step.
func (d *directory) install(name string, content []byte) error {
	path := d.path + "/" + name
	if err := removeFile(path + temporarySuffix); err != nil {
		return err
	}
	fd, err := d.create(path+temporarySuffix, syscall.O_WRONLY)
	if err != nil {
		return err
	}
	defer closeFile(fd)
	if err := writeAt(fd, content, 0); err != nil {
		return err
	}
	if err := syncFile(fd); err != nil {
		return err
	}
	if err := renameFile(path+temporarySuffix, path); err != nil {
		return err
	}
	return syncDir(d.path)
}
