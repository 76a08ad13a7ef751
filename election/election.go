package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Election is one candidate, or observer, of an election. Make it with [New]. It is safe for
// concurrent use.
type Election struct {
	locker *holdfast.Locker
	name   string
	config config

	// telling has one element while onError is called. It is no mutex: a bubble of testing/synctest
	// does not see that somebody waits for one.
	telling chan struct{}

	checking  chan struct{}  // has one element while the health check is called
	showing   sync.WaitGroup // goroutines that show that a preferred candidate waits
	yielded   bool           // a term has ended for a preferred one
	yieldedAt clock.Instant  // when it last did

	mu      sync.Mutex
	running bool
	term    *term // nil if it does not lead
}

// New returns an Election of that name, which is the key of the lock. It makes no request; Run
// campaigns. New fails with holdfast.ErrInvalid if locker is nil, if the name is empty or too long,
// if an option is nil or out of range, or with [WithPreferred] if the backend does not show its
// keys. Run fails with what only the Locker can check.
func New(locker *holdfast.Locker, name string, options ...Option) (*Election, error) {
	switch {
	case locker == nil:
		return nil, invalid("locker is nil: make one with holdfast.New")
	case name == "" || len(name) > driver.MaxKeyLen:
		return nil, invalid("name %.40q has %d bytes: must have 1 to %d", name, len(name),
			driver.MaxKeyLen)
	}
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	if longest := driver.MaxKeyLen - len(preferredSuffix); c.preference != indifferent &&
		len(name) > longest {
		return nil, invalid("name %.40q has %d bytes: with WithPreferred at most %d are allowed",
			name, len(name), longest)
	}
	if c.preference != indifferent {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := locker.Inspect(ended, name+preferredSuffix)
		if errors.Is(err, holdfast.ErrInvalid) {
			return nil, fmt.Errorf("election: WithPreferred: %w", err)
		}
	}
	return &Election{locker: locker, name: name, config: c, telling: make(chan struct{}, 1),
		checking: make(chan struct{}, 1)}, nil
}

// Name returns the name of the election.
func (e *Election) Name() string { return e.name }

// Run campaigns, and calls lead when this candidate leads. The context that lead gets ends with the
// term: with the lock, with ctx, by [Election.Resign], for a preferred candidate, or because the
// health check failed; context.Cause says which. Then lead should return soon. When lead returns,
// for that reason or by itself, the term is over, and after a pause Run campaigns again.
//
// Run returns
//   - the cause of ctx, when ctx has ended;
//   - the error of the campaign, if trying again will not help: holdfast.ErrClosed,
//     holdfast.ErrInvalid, or what driver.Permanent reports, such as a wrong password;
//   - with [WithStopOnError], what lead returned, if lead ended the term by itself with an error;
//   - holdfast.ErrInvalid if ctx or lead is nil, or another Run of this Election has not returned.
//
// It returns in no other case. Any other error is told to [WithOnError]. ctx must not come from a
// Lock on the same key: Run would get a nested Lock, and lead without a campaign.
func (e *Election) Run(ctx context.Context,
	lead func(ctx context.Context, term Term) error) error {
	if ctx == nil || lead == nil {
		return invalid("context or function is nil for %q: give both", e.name)
	}
	if !e.start() {
		return invalid("%q: another Run of this Election has not returned: make one Election each",
			e.name)
	}
	defer e.stop()
	defer e.showing.Wait()
	smallest, largest := e.config.minPause, e.config.maxPause
	terms := pauses{min: smallest, max: largest}
	campaigns := pauses{min: smallest, max: max(smallest, min(largest, maxCampaignPause))}
	options := e.config.acquireOptions()
	for {
		var pause time.Duration
		lock, err := e.campaign(ctx, options)
		switch {
		case err == nil:
			began := clock.Now()
			var cause error
			cause, err = e.serve(ctx, lock, lead)
			if ctx.Err() == nil && err != nil && e.config.stopOnError {
				return err
			}
			e.tellTerm(lock, err)
			campaigns.reset()
			pause = terms.afterTerm(clock.Now().Sub(began), cause)
		case ctx.Err() != nil:
		case hopeless(err):
			return err
		default:
			e.tell(err)
			pause = campaigns.take()
		}
		sleep(ctx, pause)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// hopeless reports whether a campaign that failed with err will fail again.
func hopeless(err error) bool {
	return errors.Is(err, holdfast.ErrClosed) || errors.Is(err, holdfast.ErrInvalid) ||
		driver.Permanent(err)
}

// Resign ends the term on purpose: it cancels the term's context with [ErrResigned], waits for the
// function, and releases the lock, so that another candidate leads. This candidate campaigns again
// after a pause, behind those that wait. Resign returns nil if this candidate does not lead.
//
// Resign returns when the lock is released. It returns [ErrOverdue] if the grace was over before
// the function had returned, and the error of the release if the lock was lost or the release was
// not confirmed (see holdfast.Lock.Release). ctx bounds the wait, not the resignation: when ctx
// ends, Resign returns its cause. Resign fails with holdfast.ErrInvalid if ctx is nil. The function
// itself resigns by returning. If it calls Resign, it must pass the context of the term: with
// another one it would wait for itself.
func (e *Election) Resign(ctx context.Context) error {
	if ctx == nil {
		return invalid("context is nil for %q: use context.Background()", e.name)
	}
	e.mu.Lock()
	t := e.term
	e.mu.Unlock()
	if t == nil {
		return nil
	}
	t.cancel(ErrResigned)
	select {
	case <-t.released:
		return t.outcome
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *Election) start() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		return false
	}
	e.running = true
	return true
}

func (e *Election) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

func (e *Election) setTerm(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

// tell reports an error.
func (e *Election) tell(err error) {
	e.telling <- struct{}{}
	defer func() { <-e.telling }()
	e.config.onError(err)
}

// tellTerm reports err as what went wrong with the term of lock. A nil err is not reported.
func (e *Election) tellTerm(lock *holdfast.Lock, err error) {
	if err != nil {
		e.tell(&TermError{Name: e.name, Token: lock.Token(), Err: err})
	}
}
