//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// locate returns the true path of the directory, and makes it if it alone is missing. With the true
// path, a symbolic link that changes later does not lead a process that has opened the directory to
// other files.
func locate(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("\"\" names no directory")
	}
	if filepath.IsAbs(dir) {
		return resolve(dir)
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return resolve(here + "/" + dir)
}

// mostLinks is how many symbolic links a path may lead through.
const mostLinks = 40

// resolve returns an absolute path without its symbolic links, and makes the directory if the last
// name alone is missing, unless a link leads to it. A .. after a symbolic link is the parent of
// what that leads to, as for the system.
//
// In a directory where everybody may make a link, resolve follows only links of this user and of
// the directory's owner. Otherwise a stranger could lead each process to another directory of ours.
// Linux has that rule for sticky directories, as fs.protected_symlinks, but not on every machine,
// and not for links that a program reads itself.
func resolve(path string) (string, error) {
	rest := names(path)
	given := len(rest) // so many names at the end come from the caller, not from a link
	path = "/"
	for links := 0; len(rest) > 0; {
		name, isGiven := rest[0], len(rest) == given
		rest = rest[1:]
		given = min(given, len(rest))
		if name == ".." {
			path = filepath.Dir(path)
			continue
		}
		next := filepath.Join(path, name)
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) && isGiven {
			info, err = makeLast(next, len(rest) == 0)
		}
		switch {
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			path = next
			continue
		}
		if links++; links > mostLinks {
			return "", &fs.PathError{Op: "open", Path: next, Err: syscall.ELOOP}
		}
		if err := trustLink(path, next, info); err != nil {
			return "", err
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			path = "/"
		}
		rest = append(names(target), rest...)
	}
	return path, nil
}

// names splits a path.
func names(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool {
		return name == "" || name == "."
	})
}

// makeLast makes a directory that is missing, if it is the last one of a path.
func makeLast(path string, last bool) (fs.FileInfo, error) {
	if !last {
		return nil, fmt.Errorf("%s does not exist: %w", path, fs.ErrNotExist)
	}
	err := os.Mkdir(path, 0o700)
	switch {
	case err == nil, errors.Is(err, fs.ErrExist): // another process may have been faster
		return os.Lstat(path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("it does not exist, and cannot be created by user %d in %s (%s): %w",
			os.Geteuid(), filepath.Dir(path), describe(filepath.Dir(path)), err)
	default: // for every user, as on a read-only file system
		return nil, fmt.Errorf("it does not exist, and cannot be created: %w", err)
	}
}

func trustLink(dir, path string, link fs.FileInfo) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	everybody := info.Mode().Perm()&0o002 != 0
	if owner := ownerOf(link); everybody && owner != os.Geteuid() && owner != ownerOf(info) {
		return fmt.Errorf(
			"symbolic link %s belongs to user %d, and everybody may make one there: %w", path,
			owner, fs.ErrPermission)
	}
	return nil
}
