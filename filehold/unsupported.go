//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filehold

import (
	"fmt"
	"os"
	"runtime"

	"github.com/holdfast-go/holdfast/driver"
)

type unsupported interface {
	driver.Backend
	driver.Notifier
	driver.Inspector
	driver.Identifier
	Dir() string
	Inherit() []*os.File
}

// Backend keeps locks in a directory. On this system there never is one: Open fails.
type Backend struct{ unsupported }

// Open fails: filehold needs flock and named pipes in the file system.
func Open(dir string, options ...Option) (*Backend, error) {
	if _, err := configure(dir, options); err != nil {
		return nil, err
	}
	return nil, &driver.Error{Node: dir, Permanent: true, Err: fmt.Errorf(
		"filehold does not work on %s: it rests on flock, which frees the locks of a process that dies",
		runtime.GOOS)}
}
