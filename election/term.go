package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Term is one time of leading.
type Term struct{ lock *holdfast.Lock }

// Token returns the number of the term, which is the fencing token of its lock: send it with every
// write to what the leader alone may change. It rises from each term to the next.
func (t Term) Token() holdfast.Token { return t.lock.Token() }

// Deadline returns until when the term lasts if the lock is not renewed again: what must not
// happen under the next leader has to be done by then. See holdfast.Lock.Deadline.
func (t Term) Deadline() time.Time { return t.lock.Deadline() }

// Err returns nil while the lock is held, and then why it is not. It reads the clock, as
// holdfast.Lock.Err does, so a process that was paused learns by it before its context ends.
func (t Term) Err() error { return t.lock.Err() }

// String describes the term for logs.
func (t Term) String() string { return fmt.Sprintf("term %d of %q", t.Token(), t.lock.Key()) }

// term is what Run knows of a term. It ends in three steps, whatever ends it: the context is
// cancelled, the function returns, the lock is released. The second is waited for, but for no
// longer than the grace.
type term struct {
	election *Election
	lock     *holdfast.Lock
	ctx      context.Context // the function's
	cancel   context.CancelCauseFunc
	back     context.Context // ends when the function has returned
	health   sync.WaitGroup  // the goroutine that checks the health

	letGo    atomic.Bool   // somebody releases the lock
	outcome  error         // what Resign returns; set before released is closed
	released chan struct{} // closed when the lock was released
}

// serve leads for one term. It returns the error with which lead ended the term by itself, if it
// did; everything else that went wrong is told.
func (e *Election) serve(ctx context.Context, lock *holdfast.Lock,
	lead func(context.Context, Term) error) (err error) {
	defer lock.Release(context.Background()) // for when ctx panics; else it is released already
	t := &term{election: e, lock: lock, released: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(lock.Context(ctx))
	back, returned := context.WithCancel(context.Background())
	t.back = back
	e.setTerm(t)
	graceOver := make(chan struct{})
	unhook := context.AfterFunc(t.ctx, func() {
		defer close(graceOver)
		t.await()
	})
	// Deferred, so that a panic of lead, or the end of its goroutine, leaves nothing behind.
	defer func() {
		cause := context.Cause(t.ctx)
		returned()
		if unhook() {
			close(graceOver)
		}
		t.cancel(errReturned)
		releaseErr := t.release(nil)
		e.setTerm(nil)
		<-graceOver
		t.health.Wait()
		err = t.report(ctx, cause, err, releaseErr)
	}()
	if e.config.check != nil {
		t.check()
	}
	if t.ctx.Err() != nil {
		return nil
	}
	if e.config.check != nil {
		t.health.Go(t.watch)
	}
	return lead(t.ctx, Term{lock})
}

// await waits for the function after the context of the term has ended. When the grace is over it
// releases the lock.
func (t *term) await() {
	sleep(t.back, t.election.config.grace)
	if t.back.Err() != nil {
		return
	}
	overdue := fmt.Errorf("%w of %v, which began with: %w", ErrOverdue, t.election.config.grace,
		context.Cause(t.ctx))
	t.release(overdue)
	t.election.tellTerm(t.lock, overdue)
}

// release releases the lock, once, and returns when it is released. It returns the error of that if
// this call did it. reason is why it did not wait for the function, or nil.
func (t *term) release(reason error) error {
	if t.letGo.Swap(true) {
		<-t.released
		return nil
	}
	err := t.lock.Release(context.Background())
	t.outcome = errors.Join(reason, err)
	close(t.released)
	return err
}

// report tells what went wrong. It returns err if the function ended the term by itself, which is
// so if the context had no cause. ctx is that of Run, which returns its cause.
func (t *term) report(ctx context.Context, cause, err, releaseErr error) error {
	e := t.election
	byItself := cause == nil
	if !byItself {
		if !errors.Is(cause, ErrResigned) && !(ctx.Err() != nil &&
			errors.Is(cause, context.Cause(ctx))) {
			e.tellTerm(t.lock, cause)
		}
		// A function that returns why its context ended says nothing new.
		if !errors.Is(err, cause) && !errors.Is(err, t.ctx.Err()) {
			e.tellTerm(t.lock, err)
		}
		err = nil
	}
	if releaseErr != nil && !errors.Is(cause, releaseErr) {
		e.tellTerm(t.lock, releaseErr)
	}
	return err
}
