package zkhold

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// List yields every key that is held or waited for and begins with prefix, without its waiters, in
// no order. It reads 32 slots at a time, and no more until the caller has taken what is in them, so
// the whole is no snapshot. It fails as [Backend.Inspect] does. ctx ends the iteration with an
// error. The timeout bounds the wait for each answer.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(driver.Entry{}, cutOff(false, err))
			return
		}
		limited, stop := context.WithCancel(ctx)
		defer stop()
		l := &listing{b: b, ctx: limited, prefix: prefix,
			answers: make(chan answered)}
		if err := l.run(yield); err != nil {
			yield(driver.Entry{}, b.ours(err))
		}
	}
}

// listing is a List under way.
type listing struct {
	b       *Backend
	ctx     context.Context // until the caller has enough
	prefix  string
	slots   []string
	next    atomic.Int64 // which of them is to be read next
	answers chan answered
}

// answered is what a slot has told.
type answered struct {
	entries []driver.Entry
	err     error
}

// run yields what is in the slots, until the caller has enough.
func (l *listing) run(yield func(driver.Entry, error) bool) (err error) {
	if !l.b.spawn(func() {
		names, err := l.b.slotNames()
		l.slots = names
		l.tell(answered{err: err})
	}) {
		return closedError()
	}
	if _, err := l.wait(); err != nil {
		return err
	}
	for range min(maxParallel, len(l.slots)) {
		if !l.b.spawn(l.read) {
			return closedError()
		}
	}
	for range l.slots {
		entries, err := l.wait()
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !yield(e, nil) {
				return nil
			}
		}
	}
	return nil
}

// wait waits for the next answer.
func (l *listing) wait() ([]driver.Entry, error) {
	bound := time.NewTimer(l.b.timeout)
	defer bound.Stop()
	select {
	case a := <-l.answers:
		driver.Answered(l.ctx)
		return a.entries, a.err
	case <-l.ctx.Done():
		return nil, cutOff(false, l.ctx.Err())
	case <-bound.C:
		return nil, cutOff(false, context.DeadlineExceeded)
	}
}

// tell hands an answer to the caller. It reports whether the caller wants more.
func (l *listing) tell(a answered) bool {
	select {
	case l.answers <- a:
		return a.err == nil
	case <-l.ctx.Done():
		return false
	}
}

// read reads slots until there is none left.
func (l *listing) read() {
	for l.ctx.Err() == nil {
		i := int(l.next.Add(1)) - 1
		if i >= len(l.slots) || !l.tell(l.slot(l.slots[i])) {
			return
		}
	}
}

func (l *listing) slot(name string) answered {
	found, err := l.b.entries(name, false)
	if err != nil {
		return answered{err: err}
	}
	found = slices.DeleteFunc(found, func(e driver.Entry) bool {
		return !strings.HasPrefix(e.Key, l.prefix)
	})
	for i := range found {
		found[i].Waiters = nil
	}
	return answered{entries: found}
}

// slotNames returns the names of the slots that there are.
func (b *Backend) slotNames() ([]string, error) {
	if err := b.sync(b.root); err != nil {
		return nil, readFailed(err)
	}
	names, _, err := b.client.Children(b.slotsPath())
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, readFailed(err)
	}
	return names, nil
}
