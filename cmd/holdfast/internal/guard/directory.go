//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
)

// directory keeps each resource in files of its own, which fence.File makes. The file that is
// guarded there contains the resource's name.
type directory struct{ path string }

// OpenDirectory returns the store in a directory of this machine. It looks at nothing yet.
func OpenDirectory(path string) (Store, error) { return directory{path}, nil }

// Init makes the directory, but none above it.
func (d directory) Init(context.Context) error {
	err := os.Mkdir(d.path, 0o777)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(d.path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory (%v)", d.path, info.Mode())
	}
	return err
}

// file is where a resource is. Its name is no path, and may be longer than a file's.
func (d directory) file(resource string) string {
	sum := sha256.Sum256([]byte(resource))
	return filepath.Join(d.path, hex.EncodeToString(sum[:]))
}

func (d directory) Advance(ctx context.Context, resource string, token fence.Token) error {
	if err := d.check(); err != nil {
		return err
	}
	err := fence.File{Path: d.file(resource)}.Write(ctx, token, strings.NewReader(resource+"\n"))
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		stale.Resource = resource
	}
	return err
}

// Newest reads the file in which fence.File has the token. It is replaced as a whole.
func (d directory) Newest(_ context.Context, resource string) (fence.Token, error) {
	if err := d.check(); err != nil {
		return 0, err
	}
	path := d.file(resource) + ".fence"
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 10, 64)
	if err != nil || n == 0 || fence.Token(n) > fence.MaxToken {
		return 0, fmt.Errorf("%w: %s has %.40q; want a token", fence.ErrUnavailable, path, text)
	}
	return fence.Token(n), nil
}

// check tells a directory that is not there from a resource that is not.
func (d directory) check() error {
	_, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrMissing
	}
	return err
}

func (d directory) Close() error { return nil }
