package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/waitline"
)

const (
	// releaseTime bounds the wait for the answer to a release. Without an answer the lock ends with
	// its lease.
	releaseTime = 5 * time.Second

	// closeTime bounds each of the closings that follow. Locker.Close has a bound of its own; this
	// one is for a backend that ignores it.
	closeTime = 10 * time.Second

	// hurryTime replaces both after a signal. A backend that answers needs less. So the lock is
	// released even if the signal went to a whole group or container at once.
	hurryTime = time.Second
)

// cleanup bounds the last steps of holdfast: it releases the lock, and closes what holdfast has
// opened.
type cleanup struct {
	ctx    context.Context // ended early by a signal
	cancel context.CancelCauseFunc
	told   bool // tell was called
}

func newCleanup() *cleanup {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &cleanup{ctx: ctx, cancel: cancel}
}

// heed ends the cleanup on signals that would end a program: hurryTime after the first one, and at
// once on a second one. It reads the channel until end is called.
func (c *cleanup) heed(signals <-chan os.Signal) {
	go func() {
		var over <-chan time.Time
		var reason error
		for {
			select {
			case s := <-signals:
				switch {
				case !child.Ends(s):
				case over == nil:
					over = time.After(hurryTime)
					reason = fmt.Errorf("no answer before a signal (%v)", s)
				default:
					c.cancel(reason)
				}
			case <-over:
				c.cancel(reason)
			case <-c.ctx.Done():
				return
			}
		}
	}()
}

// end stops heed. Call it when the cleanup is done.
func (c *cleanup) end() { c.cancel(nil) }

// release frees the locks.
func (c *cleanup) release(locks grip) error {
	ctx, cancel := context.WithTimeoutCause(c.ctx, releaseTime,
		fmt.Errorf("no answer within %v", releaseTime))
	defer cancel()
	err := locks.Release(ctx)
	reason := context.Cause(ctx)
	if reason == nil || !errors.Is(err, reason) || errors.Is(err, holdfast.ErrLost) {
		return err
	}
	var names []string
	for _, lock := range locks.Locks() {
		names = append(names, lock.Key())
	}
	return fmt.Errorf("release %s: %w", waitline.Quote(names), reason)
}

// tell reports that perhaps the lock is not released. The caller then drops the error of
// Locker.Close, which says the same.
func (c *cleanup) tell(say *messages, err error) {
	c.told = true
	say.printf("%v; the lock ends with its lease at the latest", err)
}

// bounded runs f. It returns when f returns, after closeTime, or when a signal ends the cleanup.
func (c *cleanup) bounded(f func()) {
	ctx, cancel := context.WithTimeout(c.ctx, closeTime)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
