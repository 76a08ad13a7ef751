//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Tests replace these, because tests have no network file system, have one clock, and cannot
// reboot.
var (
	networkFSSource = networkFS
	oneKernelSource = oneKernel
	bootMarkSource  = readBootMark
	clockMarkSource = readClockMark
)

// openDirectory finds or makes the directory, and checks that it will do.
func openDirectory(dir string, cfg config) (*directory, error) {
	d := &directory{path: dir, shared: cfg.shared}
	path, err := locate(dir)
	if err != nil {
		return nil, d.fail("cannot be found: %w", err)
	}
	d.path = path
	d.keys = d.path + "/" + keysName + "/"
	d.members = d.path + "/" + membersName + "/"
	d.fence = d.path + "/" + fenceName + "/"
	if err := d.checkTrust(); err != nil {
		return nil, err
	}
	if name := networkFSSource(d.path); name != "" {
		return nil, d.fail("is on a network file system (%s): its file locks do not free what a "+
			"dead process held; use a local directory", name)
	}
	if d.known, err = d.checkContent(); err != nil {
		return nil, err
	}
	d.boot = bootMarkSource()
	d.clock = clockMarkSource(d.path)
	return d, d.furnish()
}

// owned fails if path is no directory or belongs to another user. what begins the error, for
// example "its keys ".
func (d *directory) owned(path, what string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, d.wrap(err)
	case !info.IsDir():
		return nil, d.fail("%sis not a directory (mode %v): %w", what, info.Mode(), syscall.ENOTDIR)
	case !d.shared && ownerOf(info) != os.Geteuid():
		return nil, d.fail("%sbelongs to user %d, and this process runs as user %d: use a directory "+
			"of your own, or say WithSharedDirectory if it is meant to be shared: %w",
			what, ownerOf(info), os.Geteuid(), fs.ErrPermission)
	}
	return info, nil
}

// checkTrust refuses a directory in which a stranger could take locks away.
func (d *directory) checkTrust() error {
	info, err := d.owned(d.path, "")
	if err != nil {
		return err
	}
	mode := info.Mode()
	if mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return d.fail("can be written to by everybody and is not sticky (mode %v), so anybody "+
			"could replace what is in it: chmod o-w or chmod +t: %w", mode, fs.ErrPermission)
	}
	d.fileMode, d.dirMode = 0o600|keepBit, 0o700
	if d.shared {
		d.fileMode = uint32(mode.Perm()&0o666) | keepBit
		// It is not sticky, because each user has to remove files that another has left behind.
		d.dirMode = uint32(mode.Perm())
		if mode&fs.ModeSetgid != 0 {
			d.dirMode |= syscall.S_ISGID
		}
	}
	return nil
}

// furnish makes the directories that are missing. Many processes may furnish at once. If one dies,
// the next goes on where it stopped.
func (d *directory) furnish() error {
	// This is done in a marked directory too: if somebody removed a directory in it, no more is
	// lost than the locks that were there.
	for _, path := range []string{d.keys, d.members, d.fence} {
		if err := d.furnishDir(filepath.Clean(path)); err != nil {
			return err
		}
	}
	return nil
}

// furnishDir makes a directory in ours if it is missing, and checks that it will do.
func (d *directory) furnishDir(path string) error {
	what := "its " + filepath.Base(path) + " "
	info, err := d.owned(path, what)
	if errors.Is(err, fs.ErrNotExist) {
		if err := d.makeDir(path); err != nil {
			return d.wrap(err)
		}
		info, err = d.owned(path, what)
	}
	if err != nil {
		return err
	}
	if d.shared && ownerOf(info) == os.Geteuid() && uint32(info.Mode().Perm()) != d.dirMode&0o777 {
		// A process of ours was killed between the two steps of makeDir.
		if err := d.permit(path, syscall.S_IFDIR, d.dirMode); err != nil {
			return d.wrap(err)
		}
	}
	return nil
}
