package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// preferredSuffix, behind the name of the election, is the key that a preferred candidate holds
// while it waits for the lock.
const preferredSuffix = "@preferred"

// preference is what WithPreferred has set.
type preference uint8

const (
	indifferent preference = iota // neither shows nor looks
	ordinary                      // gives up for a preferred one
	preferred                     // shows that it waits
)

// campaign acquires the lock. A preferred candidate shows meanwhile that it waits.
func (e *Election) campaign(ctx context.Context,
	options []holdfast.AcquireOption) (lock *holdfast.Lock, err error) {
	if e.config.preference == preferred {
		waiting, over := context.WithCancel(ctx)
		defer func() {
			told := false
			defer func() {
				if !told && lock != nil { // ctx panics
					lock.Release(context.Background())
				}
			}()
			over()
			told = true
		}()
		e.showing.Wait() // since the last campaign
		e.showing.Go(func() { contain(func() { e.showAgain(waiting) }, e.tell) })
	}
	return e.locker.Acquire(ctx, e.name, options...)
}

// showAgain shows that this candidate waits, whenever it is healthy, until ctx ends.
func (e *Election) showAgain(ctx context.Context) {
	retry := pauses{min: e.config.minPause, max: e.config.maxPause}
	for ctx.Err() == nil {
		began := clock.Now()
		err := e.show(ctx)
		switch {
		case errors.Is(err, holdfast.ErrClosed): // the campaign fails with it
			return
		case hopeless(err):
			e.tell(err)
			return
		case err != nil:
			e.tell(err)
		}
		sleep(ctx, retry.afterTerm(clock.Now().Sub(began), nil))
	}
}

// show holds the second key until ctx ends, the health check fails, or the key is lost. It returns
// what went wrong.
func (e *Election) show(ctx context.Context) error {
	well, fail := context.WithCancelCause(ctx)
	var checks sync.WaitGroup
	defer checks.Wait()
	defer fail(nil)
	if e.config.check != nil {
		e.probe(well, fail)
		checks.Go(func() { contain(func() { e.watch(well, fail) }, fail) })
	}
	// Holding this key is no term, so what bounds a term does not bound it.
	options := append(e.config.acquireOptions(), holdfast.WithMaxHold(0))
	lock, err := e.locker.Acquire(well, e.name+preferredSuffix, options...)
	switch {
	case err != nil && ctx.Err() != nil: // the campaign is over
		return nil
	case err != nil:
		return err
	}
	defer lock.Release(context.Background()) // if ctx panics; otherwise it is released already
	held := lock.Context(well)
	keep(held, lock)
	if well.Err() == nil {
		return context.Cause(held) // lost
	}
	err = lock.Release(context.Background())
	if ctx.Err() == nil {
		err = errors.Join(context.Cause(well), err)
	}
	return err
}

// keep waits until ctx ends, which ends with the lock. It extends the lease if nothing has renewed
// it in time, as with holdfast.WithoutRenewal.
func keep(ctx context.Context, lock *holdfast.Lock) {
	left := func() time.Duration { return lock.Deadline().Sub(clock.Time(clock.Now())) }
	var whole time.Duration
	for ctx.Err() == nil {
		whole = max(whole, left()) // a lease that was handed over is short until it is renewed
		sleep(ctx, max(whole/4, time.Millisecond))
		if left() < whole*5/8 {
			lock.Extend(ctx) // if it fails, there is time for another one
		}
	}
}

// lookOut ends the term when a preferred candidate waits. It calls first after the first look.
func (t *term) lookOut(first func()) {
	e := t.election
	defer first()
	if wait := e.config.maxPause - clock.Now().Sub(e.yieldedAt); e.yielded && wait > 0 {
		first()
		sleep(t.ctx, wait)
	}
	for failing := false; t.ctx.Err() == nil; sleep(t.ctx, e.config.poll) {
		waits, err := t.look()
		if waits {
			e.yielded, e.yieldedAt = true, clock.Now()
			t.cancel(ErrPreferred)
			return
		}
		first()
		if err != nil && !failing && t.ctx.Err() == nil {
			e.tellTerm(t.lock, err)
		}
		failing = err != nil
	}
}

// look reports whether a preferred candidate waits.
func (t *term) look() (bool, error) {
	e := t.election
	ctx, cancel := context.WithTimeout(t.ctx, max(e.config.poll, time.Second))
	defer cancel()
	entry, err := e.locker.Inspect(ctx, e.name+preferredSuffix)
	return entry.Holder.Owner != "", err
}
