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

// Token returns the number of the term, which is the fencing token of its lock. It rises from each
// term to the next. Send it with every write to what only the leader may change.
func (t Term) Token() holdfast.Token { return t.lock.Token() }

// Deadline returns the time until which the term lasts if the lock is not renewed again. What must
// not happen under the next leader has to be done by then. See holdfast.Lock.Deadline.
func (t Term) Deadline() time.Time { return t.lock.Deadline() }

// Done returns a channel that is closed when the lock is no longer held. After an end on purpose,
// the term's context ends first and the lock later. See holdfast.Lock.Done.
func (t Term) Done() <-chan struct{} { return t.lock.Done() }

// Err returns nil while the lock is held, and afterwards why it is not. Like holdfast.Lock.Err it
// reads the clock, so a process that was paused learns of a loss from Err before its context ends.
func (t Term) Err() error { return t.lock.Err() }

// String describes the term for logs.
func (t Term) String() string { return fmt.Sprintf("term %d of %q", t.Token(), t.lock.Key()) }

// term is what Run knows of a term. Whatever ends it, it ends in three steps: the context is
// cancelled, the function returns, the lock is released. The third step waits for the second, but
// no longer than the grace.
type term struct {
	election *Election
	lock     *holdfast.Lock
	ctx      context.Context // the function's
	cancel   context.CancelCauseFunc
	back     context.Context // ends when the function has returned
	tasks    sync.WaitGroup  // goroutines that watch over the term

	lossTold atomic.Bool   // the loss of the lock was told
	letGo    atomic.Bool   // somebody releases the lock
	outcome  error         // what Resign returns; set before released is closed
	released chan struct{} // closed when the lock was released
}

// serve leads for one term, and returns when nothing of it is left. cause is why the context of the
// term ended, or nil. err is the error with which lead ended the term by itself, or nil. Everything
// else that went wrong is told.
func (e *Election) serve(ctx context.Context, lock *holdfast.Lock,
	lead func(context.Context, Term) error) (cause, err error) {
	defer lock.Release(context.Background()) // if ctx panics; otherwise it is released already
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
	// This is deferred so that nothing is left behind if lead panics or ends its goroutine.
	defer func() {
		cause = context.Cause(t.ctx)
		returned()
		if unhook() {
			close(graceOver)
		}
		t.cancel(errReturned)
		releaseErr := t.end(graceOver)
		err = t.report(ctx, cause, err, releaseErr)
	}()
	t.prepare()
	if t.ctx.Err() == nil {
		err = lead(t.ctx, Term{lock})
	}
	return nil, err
}

// end releases the lock if nobody has, and waits for the goroutines that watch over the term. The
// term's context has ended. end returns the error of the release.
func (t *term) end(graceOver <-chan struct{}) error {
	defer func() { // also if the context of Run panics, because the panic ends here
		t.election.setTerm(nil)
		<-graceOver
		t.tasks.Wait()
	}()
	return t.release(nil)
}

// prepare starts the goroutines that watch over the term. It returns when the function may be
// called, or when the term has ended, because a check that hangs must not keep the lock.
func (t *term) prepare() {
	e := t.election
	if e.config.check != nil {
		t.first(func(done func()) {
			e.probe(t.ctx, t.cancel)
			done()
			e.watch(t.ctx, t.cancel)
		})
	}
	if e.config.preference == ordinary && t.ctx.Err() == nil {
		t.first(t.lookOut)
	}
}

// first runs task for as long as the term lasts. It returns as soon as task has called done, task
// has ended, or the term has ended.
func (t *term) first(task func(done func())) {
	ctx, done := context.WithCancel(t.ctx)
	t.tasks.Go(func() {
		defer done()                             // also if a check ends this goroutine
		contain(func() { task(done) }, t.cancel) // else nothing would watch over the term any more
	})
	<-ctx.Done()
}

// await waits for the function after the context of the term has ended. If the lock is lost, it
// tells so at once, because another candidate may lead from then on beside the function. When the
// grace is over it releases the lock.
func (t *term) await() {
	grace, cancel := context.WithTimeout(t.back, t.election.config.grace)
	defer cancel()
	select {
	case <-t.lock.Done():
		t.tellEnd(t.lock.Err())
		<-grace.Done()
	case <-grace.Done():
	}
	if t.back.Err() != nil {
		return
	}
	overdue := fmt.Errorf("%w of %v, which began with: %w", ErrOverdue, t.election.config.grace,
		context.Cause(t.ctx))
	var err error
	defer func() { // even if a context ends the goroutine
		t.election.tellTerm(t.lock, overdue)
		t.tellEnd(err)
	}()
	contain(func() { err = t.release(overdue) },
		func(fault error) { err = fmt.Errorf("%w: %w", errNotReleased, fault) })
}

// release releases the lock once, and returns when it is released. The call that released it
// returns the error of the release; other calls return nil. reason says why the lock is released
// before the function has returned, or is nil.
func (t *term) release(reason error) error {
	if t.letGo.Swap(true) {
		<-t.released
		return nil
	}
	defer close(t.released)
	// If the context of Run panics as the lock ends, the release goes on in the background.
	t.outcome = errors.Join(reason, errNotReleased)
	err := t.lock.Release(context.Background())
	t.outcome = errors.Join(reason, err)
	return err
}

// tellEnd tells why the lock has ended, unless it was released. A loss is told once: several calls
// may find it.
func (t *term) tellEnd(err error) {
	if errors.Is(err, holdfast.ErrReleased) ||
		errors.Is(err, holdfast.ErrLost) && t.lossTold.Swap(true) {
		return
	}
	t.election.tellTerm(t.lock, err)
}

// onPurpose reports whether cause is that of an end on purpose.
func onPurpose(cause error) bool {
	return errors.Is(cause, ErrResigned) || errors.Is(cause, ErrPreferred)
}

// report tells what went wrong with the term. If the context had no cause, the function ended the
// term by itself, and report returns err. ctx is the context of Run; Run returns its cause, so
// report does not tell it.
func (t *term) report(ctx context.Context, cause, err, releaseErr error) error {
	e := t.election
	byItself := cause == nil
	if !byItself {
		if !onPurpose(cause) && !(ctx.Err() != nil &&
			errors.Is(cause, context.Cause(ctx))) {
			t.tellEnd(cause)
		}
		// A function that returns why its context ended says nothing new.
		if !errors.Is(err, cause) && !errors.Is(err, t.ctx.Err()) {
			e.tellTerm(t.lock, err)
		}
		err = nil
	}
	t.tellEnd(releaseErr)
	return err
}
