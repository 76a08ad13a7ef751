//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/fence/internal/ending"
)

// File guards a file that the processes of one machine write. It is replaced as a whole: readers
// see the old one or the new one, and need no guard. Beside it are two files that belong to the
// guard and must never be deleted: Path with ".fence" has the newest token, and Path with ".lock"
// serialises writers. A process that is killed while it writes leaves a file Path with "." and
// ".tmp" around digits, which may be deleted. Symbolic links are followed, so the guard's files are
// beside the file itself. File is for file systems of one machine, on systems with flock, so not on
// Windows.
type File struct {
	_ struct{} // keyed literals only: fields will be added

	// Path is the path of the file. Required.
	Path string

	// Mode is the mode that the file and the files beside it get when they are written, whatever
	// the umask. All writers need the right to read. Default 0o644.
	Mode fs.FileMode
}

// Write replaces the content of the file with data, as the holder of token. It copies data to a
// file beside it, syncs that, remembers the token, and renames the new file. It holds the file's
// lock all the time, so another writer waits until it is done or its own context ends. If the token
// is stale, Write does not read data.
//
// Write fails with [*StaleError] if a larger token was accepted, with [ErrInvalid] for a token or
// path that is not allowed, such as a link to what does not exist, and with the error of data, of
// the context or of the file system. Then the file is as it was before. The token is as well,
// unless the last step has failed, the renaming. If the directory could not be synced after the
// renaming, Write fails with [ErrUnknown]: the file is replaced, but may be the old one after a
// crash of the machine.
func (f File) Write(ctx context.Context, token Token, data io.Reader) error {
	if f.Path == "" {
		return fmt.Errorf("fence: %w: the path is empty", ErrInvalid)
	}
	if err := ValidateToken(f.Path, token); err != nil {
		return err
	}
	if f.Mode == 0 {
		f.Mode = 0o644
	}
	if err := f.write(ctx, token, data); err != nil {
		var stale *StaleError
		if errors.As(err, &stale) {
			stale.Resource = f.Path // and not where a link leads to
			return err
		}
		return fmt.Errorf("fence: write to %q: %w", f.Path, err)
	}
	return nil
}

func (f File) write(ctx context.Context, token Token, data io.Reader) error {
	var err error
	if f.Path, err = resolve(f.Path); err != nil {
		return err
	}
	// For reading, as the mode may let nobody write.
	lock, err := os.OpenFile(f.Path+".lock", os.O_CREATE|os.O_RDONLY, f.Mode)
	if err != nil {
		return err
	}
	defer lock.Close() // which ends the lock
	if err := f.setMode(lock); err != nil {
		return err
	}
	if err := flock(ctx, lock); err != nil {
		return err
	}
	newest, err := f.newest()
	if err != nil {
		return err
	}
	if token < newest {
		return &StaleError{Resource: f.Path, Token: token, Newest: newest}
	}
	written, err := f.beside(data)
	if err != nil {
		return err
	}
	defer os.Remove(written) // where it was not renamed
	if ctx.Err() != nil {
		return ending.Of(ctx)
	}
	// The token is written first. After a crash in between, the writer has to try again, and no
	// older holder can write.
	if token != newest {
		if err := f.remember(token); err != nil {
			return err
		}
	}
	if err := os.Rename(written, f.Path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(f.Path)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return nil
}

// resolve follows symbolic links. So a file is one resource under whatever name it is written, and
// a link stays a link.
func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	return place(path)
}

// place returns where a file is to be made that was not there a moment ago. Another writer may have
// made it since.
func place(path string) (string, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return "", fmt.Errorf("%w: it is a symbolic link to what is not there", ErrInvalid)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// setMode gives a file that exists now the rights that the umask has taken away, unless the file
// belongs to somebody else.
func (f File) setMode(file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Mode() == f.Mode {
		return err
	}
	if err := file.Chmod(f.Mode); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// newest reads the token. Anything else in the file is an error: if it counted as no token, every
// writer would be let in.
func (f File) newest() (Token, error) {
	text, err := os.ReadFile(f.Path + ".fence")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 10, 64)
	if err != nil || n == 0 || Token(n) > MaxToken {
		return 0, fmt.Errorf("%w: %s.fence has %.40q; want a token", ErrUnavailable, f.Path, text)
	}
	return Token(n), nil
}

func (f File) remember(token Token) error {
	written, err := f.beside(strings.NewReader(token.String() + "\n"))
	if err != nil {
		return err
	}
	defer os.Remove(written)
	if err := os.Rename(written, f.Path+".fence"); err != nil {
		return err
	}
	return syncDir(filepath.Dir(f.Path))
}

// beside writes a new file into the same directory, on disk when it returns.
func (f File) beside(data io.Reader) (name string, err error) {
	file, err := os.CreateTemp(filepath.Dir(f.Path), filepath.Base(f.Path)+".*.tmp")
	if err != nil {
		return "", err
	}
	whole := false // data may also panic
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil || !whole {
			os.Remove(file.Name())
		}
	}()
	if _, err := io.Copy(file, data); err != nil {
		return "", err
	}
	whole = true
	return file.Name(), errors.Join(file.Chmod(f.Mode), file.Sync())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// lockPause is how long a writer waits before it tries again for a lock that another has.
const lockPause = 5 * time.Millisecond

// flockWaits counts the writers of this process that wait, for tests.
var flockWaits atomic.Int64

// flock locks the file. It tries again and again, because a context cannot end a wait in the
// operating system.
func flock(ctx context.Context, file *os.File) error {
	for first := true; ; first = false {
		if ctx.Err() != nil {
			return ending.Of(ctx)
		}
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case err != syscall.EWOULDBLOCK && err != syscall.EINTR:
			return &fs.PathError{Op: "flock", Path: file.Name(), Err: err}
		}
		if first {
			flockWaits.Add(1)
			defer flockWaits.Add(-1)
		}
		timer := time.NewTimer(lockPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}
