//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filehold

import (
	"context"
	"fmt"
	"iter"
	"os"
	"runtime"

	"github.com/holdfast-go/holdfast/driver"
)

// core stands in for the real one, which needs flock and named pipes in the file system. There never is one: openCore fails.
type core struct{}

func openCore(dir string, _ config) (*core, error) {
	return nil, &driver.Error{Node: dir, Permanent: true, Err: errUnsupported}
}

var errUnsupported = fmt.Errorf("filehold does not work on %s: it rests on flock, which frees the locks of a process that dies", runtime.GOOS)

func (c *core) failure() error { return &driver.Error{Permanent: true, Err: errUnsupported} }

func (c *core) acquire(context.Context, driver.Claim) (driver.Result, error) {
	return driver.Result{}, c.failure()
}

func (c *core) renew(context.Context, []driver.Claim) ([]driver.Result, error) {
	return nil, c.failure()
}

func (c *core) release(context.Context, driver.Claim) (driver.Result, error) {
	return driver.Result{}, c.failure()
}

func (c *core) notify(func(driver.Notice)) func() { return func() {} }

func (c *core) list(context.Context, string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) { yield(driver.Entry{}, c.failure()) }
}

func (c *core) inspect(context.Context, string) (driver.Entry, error) {
	return driver.Entry{}, c.failure()
}

func (c *core) identity(context.Context) (string, error) { return "", c.failure() }

func (c *core) path() string { return "" }

func (c *core) inherit() []*os.File { return nil }

func (c *core) close() {}
