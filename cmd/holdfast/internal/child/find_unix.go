//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is where shells look when PATH is not set.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// Find returns the file that a shell would execute for the command. It fails with ErrNotFound, or
// with ErrNotExecutable if there is such a file that may not be executed. An error about the
// system, such as too many open files, is neither. Unlike exec.LookPath, Find tells the two apart
// in PATH as well, and accepts relative directories in PATH, as shells do.
func Find(command string) (string, error) {
	if strings.Contains(command, "/") {
		return command, executable(command)
	}
	if command == "" {
		return "", fmt.Errorf("%q: %w", command, ErrNotFound)
	}
	path, ok := os.LookupEnv("PATH")
	if !ok {
		path = defaultPath
	}
	missing := fmt.Errorf("%q: %w", command, ErrNotFound)
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, command)
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if info, statErr := os.Stat(file); statErr == nil && info.Mode().IsRegular() &&
			!errors.Is(missing, ErrNotExecutable) {
			missing = err
		}
	}
	return "", missing
}

// executable returns nil if the kind and the permissions of the file allow it to be executed.
func executable(file string) error {
	info, err := os.Stat(file)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%q: %w: is a directory", file, ErrNotExecutable)
	}
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
	}
	if err != nil {
		return execError(file, err)
	}
	return nil
}

// execError wraps an error of examining or executing a file. An error that is not about the file,
// such as too many open files, becomes neither ErrNotFound nor ErrNotExecutable.
func execError(file string, err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return fmt.Errorf("%q: %w", file, err)
	}
	switch errno {
	case unix.ENOENT, unix.ENOTDIR:
		return fmt.Errorf("%q: %w", file, ErrNotFound)
	case unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.ENOMEM, unix.EIO, unix.EINTR, unix.EBADF,
		unix.EFAULT, unix.ENOSPC, unix.ENOSYS:
		return fmt.Errorf("%q cannot be started now: %w", file, errno)
	default:
		return fmt.Errorf("%q: %w: %w", file, ErrNotExecutable, errno)
	}
}
