package cli

import (
	"context"
	"io"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Options are what a test sets of holdfast run.
type Options struct {
	TTL, Wait, Grace time.Duration
	NoWait, Quiet    bool
}

// RunOn runs a shell script as holdfast run does, on the backend that open returns.
func RunOn(stderr io.Writer, open func(context.Context) (driver.Backend, error), o Options, script string) (code int, err error) {
	j := &job{
		name:    "name",
		path:    "/bin/sh",
		args:    []string{"sh", "-c", script},
		address: openFunc(open),
		ttl:     o.TTL,
		try:     o.NoWait,
		wait:    o.Wait,
		grace:   o.Grace,
		label:   "sh",
		quiet:   o.Quiet,
	}
	err = j.run(streams{out: io.Discard, err: stderr})
	return exitCode(err), err
}

type openFunc func(context.Context) (driver.Backend, error)

func (openFunc) String() string                                     { return "test:" }
func (openFunc) Prefix() string                                     { return "pre/" }
func (f openFunc) Open(ctx context.Context) (driver.Backend, error) { return f(ctx) }

// Bounded is bounded.
var Bounded = bounded
