package withgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
)

// ErrNotLocked says that a job of [Locker.Task] has no lock: its scheduler has no Locker, or the
// job has another name (gocron.WithName) than Task was given.
var ErrNotLocked = errors.New("the job holds no lock")

// Locker gives each run of a job a lock whose key is the job's name. It is a gocron.Locker, for
// gocron.WithDistributedLocker and gocron.WithDistributedJobLocker. Make it with [New], one for
// each process. It is safe for concurrent use.
type Locker struct {
	locker  *holdfast.Locker
	atLeast time.Duration
	config  config

	mu   sync.Mutex
	runs map[string]*run // of jobs that run now, by key
	kept int             // locks that are not released
	idle chan struct{}   // closed when kept is 0 again; nil: nobody waits
}

var _ gocron.Locker = (*Locker)(nil)

// New returns a Locker that keeps each lock for atLeast, from when gocron asked for it, and until
// the job has ended. 0 means until the job has ended; see "Clocks that differ" in the package
// documentation. It fails with holdfast.ErrInvalid if locker is nil, atLeast is negative, or an
// option is nil.
func New(locker *holdfast.Locker, atLeast time.Duration, options ...Option) (*Locker, error) {
	switch {
	case locker == nil:
		return nil, invalid("locker is nil: make one with holdfast.New")
	case atLeast < 0:
		return nil, invalid("locks kept for at least %v: must not be negative", atLeast)
	}
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	return &Locker{locker: locker, atLeast: atLeast, config: c, runs: make(map[string]*run)}, nil
}

// Lock acquires the lock of that name, once. gocron calls it for each run. It fails with the errors
// of [holdfast.Locker.TryAcquire]; gocron then skips the run.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	asked := time.Now()
	lock, err := l.locker.TryAcquire(ctx, key, l.config.lock...)
	if err != nil {
		return nil, err
	}
	r := &run{locker: l, key: key, lock: lock, until: asked.Add(l.atLeast)}
	l.mu.Lock()
	l.runs[key] = r
	l.kept++
	l.mu.Unlock()
	context.AfterFunc(lock.Context(context.Background()), func() { r.tell(lock.Err()) })
	return r, nil
}

// Task returns a function for gocron.NewTask that calls f with the lock of the run, and with a
// context that ends with the lock or with the one that gocron gives. job is the name of the job,
// which has to be set by gocron.WithName. The function returns the error of f, joined with a
// [*holdfast.LostError] if the lock was lost before f returned. Without a lock it does not call f,
// and fails with [ErrNotLocked].
func (l *Locker) Task(job string, f func(ctx context.Context, lock *holdfast.Lock) error) func(
	context.Context) error {
	return func(ctx context.Context) error {
		l.mu.Lock()
		r := l.runs[job]
		l.mu.Unlock()
		if r == nil {
			return fmt.Errorf("withgocron: %q: %w: give the job gocron.WithName(%q), and the "+
				"scheduler gocron.WithDistributedLocker", job, ErrNotLocked, job)
		}
		return withLoss(f(r.lock.Context(ctx), r.lock), r.lock.Err())
	}
}

// Wait waits until every lock was released: until the jobs have ended, and the minimum time is
// over. Call it after the scheduler was shut down. It returns the cause of ctx if that ends first.
func (l *Locker) Wait(ctx context.Context) error {
	l.mu.Lock()
	if l.kept == 0 {
		l.mu.Unlock()
		return nil
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run is one run of a job. It is the gocron.Lock.
type run struct {
	locker *Locker
	key    string
	lock   *holdfast.Lock
	until  time.Time
	over   sync.Once
	told   sync.Once
}

// Unlock releases the lock at once, or in the background when the minimum time is over. gocron
// calls it when the job has ended, perhaps with a context that has ended as well, and drops the
// error.
func (r *run) Unlock(ctx context.Context) (err error) {
	r.over.Do(func() {
		l := r.locker
		l.mu.Lock()
		if l.runs[r.key] == r { // else the next run has begun, after a loss
			delete(l.runs, r.key)
		}
		l.mu.Unlock()
		rest := time.Until(r.until)
		if rest <= 0 {
			err = r.release(context.WithoutCancel(ctx))
			return
		}
		go func() {
			timer := time.NewTimer(rest)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.lock.Done():
			}
			r.release(context.Background())
		}()
	})
	return err
}

func (r *run) release(ctx context.Context) error {
	defer r.locker.released() // even if ctx, the backend or onError panics
	err := r.lock.Release(ctx)
	r.tell(err)
	return err
}

// released notes that a lock is not kept any more.
func (l *Locker) released() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept--; l.kept == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// tell reports what went wrong with the lock, once. If the program has closed the Locker, it knows
// of the loss.
func (r *run) tell(err error) {
	if err != nil && !errors.Is(err, holdfast.ErrReleased) && !errors.Is(err, holdfast.ErrClosed) {
		r.told.Do(func() { r.locker.config.onError(r.key, err) })
	}
}

// withLoss joins what a job returned with the loss of its lock, unless that is in it already.
func withLoss(err, ended error) error {
	var lost *holdfast.LostError
	if errors.As(ended, &lost) && !errors.Is(err, error(lost)) {
		return errors.Join(err, lost)
	}
	return err
}

// invalid returns an error that wraps holdfast.ErrInvalid and says what is wrong in full.
func invalid(format string, args ...any) error {
	return fmt.Errorf("withgocron: %w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
}
