package withcontrollerruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/holdfast-go/holdfast"
)

// Defaults of Elect for the elector of the manager.
const (
	// DefaultRetryPeriod is how often a standby asks who leads, at most; up to 2.2 times as long
	// may pass.
	DefaultRetryPeriod = time.Second

	// DefaultRenewDeadline is how long after a loss the manager ends, with DefaultRetryPeriod.
	DefaultRenewDeadline = 2 * time.Second
)

// Elect returns the options with an election by a lock of that name. Make one manager with them, as
// two would lead together, and end the process when its Start has returned. lock are options of the
// lock, for example holdfast.WithTTL: how long nobody leads after the leader's process was killed.
//
// LeaderElection, LeaderElectionResourceLockInterface, LeaderElectionReleaseOnCancel and
// LeaderElectionID are set, and BaseContext is wrapped. RetryPeriod, RenewDeadline and
// LeaseDuration, which count in spite of their documentation, have other defaults:
// [DefaultRetryPeriod], [DefaultRenewDeadline] and twice that. The elector compares only the two
// former with the clock.
//
// Elect asks nobody. It fails with holdfast.ErrInvalid if locker is nil, the name or an option of
// the lock is not allowed, or LeaderElectionResourceLockInterface is set already. It finds out what
// is not allowed by an acquisition whose context has ended, which the hooks of locker see as
// refused.
//
// A standby looks whether the lock is held before it tries to take it. If the backend does not show
// its keys (driver.Inspector), it tries each time, and the elector logs each time that it is held.
func Elect(options manager.Options, locker *holdfast.Locker, name string,
	lock ...holdfast.AcquireOption) (manager.Options, error) {
	switch {
	case locker == nil:
		return options, invalid("locker is nil: make one with holdfast.New")
	case options.LeaderElectionResourceLockInterface != nil:
		return options, invalid("%q: LeaderElectionResourceLockInterface is set already: leave it "+
			"out", name)
	}
	r := &record{locker: locker, name: name, base: newBase(options.BaseContext)}
	r.options = append(append(r.options, lock...), holdfast.WithExclusive())
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := locker.TryAcquire(ended, name, r.options...); errors.Is(err, holdfast.ErrInvalid) {
		return options, fmt.Errorf("withcontrollerruntime: %w", err)
	}
	_, err := locker.Inspect(ended, name)
	r.hidden = errors.Is(err, holdfast.ErrInvalid)
	r.base.token = r.token
	host, _ := os.Hostname()
	r.identity = fmt.Sprintf("%s_%d", host, os.Getpid())
	options.LeaderElection = true
	options.LeaderElectionResourceLockInterface = r
	options.LeaderElectionReleaseOnCancel = true
	options.LeaderElectionID = name
	options.BaseContext = func() context.Context { return r.base }
	setDefault(&options.RetryPeriod, DefaultRetryPeriod)
	setDefault(&options.RenewDeadline, DefaultRenewDeadline)
	setDefault(&options.LeaseDuration, 2**options.RenewDeadline)
	return options, nil
}

func setDefault(d **time.Duration, value time.Duration) {
	if *d == nil {
		*d = &value
	}
}

// record is a lock as an elector sees it: a record that it reads and writes.
type record struct {
	locker   *holdfast.Locker
	name     string
	identity string
	options  []holdfast.AcquireOption
	hidden   bool // the backend does not show who holds the lock
	base     *base
	asked    int // by one goroutine, that of the elector

	// lock is nil until it was taken, and then stays: a second one would be another term, which the
	// elector would take for a renewal of the first.
	lock atomic.Pointer[holdfast.Lock]
}

var _ resourcelock.Interface = (*record)(nil)

func (r *record) token() (holdfast.Token, bool) {
	if lock := r.lock.Load(); lock != nil {
		return lock.Token(), true
	}
	return 0, false
}

// Get says who leads: this process, another, or nobody. It fails after the lock has ended.
func (r *record) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	who, err := r.holder(ctx)
	if err != nil {
		return nil, nil, err
	}
	r.asked++
	now := &resourcelock.LeaderElectionRecord{HolderIdentity: who,
		// The elector waits that long when it has seen the same bytes before, which it never has:
		// whether another leads is asked, and not counted.
		LeaseDurationSeconds: 3600, LeaderTransitions: r.asked}
	raw, err := json.Marshal(now)
	return now, raw, err
}

// holder returns who leads, or an empty text.
func (r *record) holder(ctx context.Context) (string, error) {
	if lock := r.lock.Load(); lock != nil {
		return r.identity, lock.Err()
	}
	if r.hidden {
		return "", nil // Update finds out
	}
	entry, err := r.locker.Inspect(ctx, r.name)
	switch {
	case errors.Is(err, errors.ErrUnsupported): // a quorum of such backends
		return "", nil
	case err != nil || entry.Holder.Owner == "":
		return "", err
	}
	return "the holder " + entry.Holder.Owner, nil
}

// Create does what Update does. There is always a record.
func (r *record) Create(ctx context.Context, now resourcelock.LeaderElectionRecord) error {
	return r.Update(ctx, now)
}

// Update takes the lock, once; says whether it is still held; or releases it, if nobody shall lead.
func (r *record) Update(ctx context.Context, now resourcelock.LeaderElectionRecord) error {
	lock := r.lock.Load()
	switch {
	case now.HolderIdentity == "" && lock != nil:
		return lock.Release(ctx)
	case lock != nil:
		return lock.Err()
	}
	lock, err := r.locker.TryAcquire(ctx, r.name, r.options...)
	if err != nil {
		return err
	}
	r.lock.Store(lock)
	held := lock.Context(context.Background())
	context.AfterFunc(held, func() { r.base.end(context.Cause(held)) })
	return nil
}

// RecordEvent does nothing: there is no object that could have events.
func (r *record) RecordEvent(string) {}

// Identity returns what Get says while this process leads.
func (r *record) Identity() string { return r.identity }

// Describe names the lock in logs.
func (r *record) Describe() string { return r.name }
