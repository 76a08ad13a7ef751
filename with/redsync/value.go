package redsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// owner returns the owner value of the lock's holder if it has the value of this Mutex: as its
// label or, if the old library has written it, as a whole. Otherwise it returns "".
func (m *Mutex) owner(ctx context.Context) (s *site, owner string, err error) {
	value := m.Value()
	if value == "" {
		return nil, "", nil
	}
	ctx = or(ctx)
	if s, err = m.redsync.site(ctx, m); err != nil {
		return nil, "", err
	}
	entry, err := s.locker.Inspect(ctx, m.name)
	if err != nil {
		return nil, "", m.noAnswer(ErrFailed, err)
	}
	holder := driver.ParseOwner(entry.Holder.Owner)
	if holder.Value != value && holder.Label != value {
		return s, "", nil
	}
	return s, holder.Value, nil
}

// unlockByValue releases a lock that another Mutex has acquired. The backend compares the owner
// value again, so it releases no lock that somebody else has by then.
func (m *Mutex) unlockByValue(ctx context.Context) (bool, error) {
	s, owner, err := m.owner(ctx)
	switch {
	case err != nil:
		return false, err
	case owner == "":
		return false, fmt.Errorf("%w: nobody holds %q with the value %q", ErrLockAlreadyExpired,
			m.name, m.Value())
	}
	ctx, cancel := context.WithTimeout(or(ctx), m.expiry)
	defer cancel()
	result, err := s.backend.Release(ctx, m.claim(owner))
	switch {
	case err != nil:
		return false, m.noAnswer(ErrFailed, err)
	case result.State != driver.Held:
		return false, fmt.Errorf("%w: it was %v", ErrLockAlreadyExpired, result.State)
	}
	return true, nil
}

// extendByValue renews a lock that another Mutex has acquired.
func (m *Mutex) extendByValue(ctx context.Context) (bool, error) {
	s, owner, err := m.owner(ctx)
	switch {
	case err != nil:
		return false, err
	case owner == "":
		return false, m.taken(fmt.Errorf("%w: %w", ErrExtendFailed, holdfast.ErrLost))
	}
	ctx, cancel := context.WithTimeout(or(ctx), m.expiry)
	defer cancel()
	began := time.Now()
	results, err := s.backend.Renew(ctx, []driver.Claim{m.claim(owner)})
	if err == nil {
		err = results[0].Err
	}
	switch {
	case err != nil:
		return false, m.noAnswer(ErrExtendFailed, err)
	case results[0].State != driver.Held:
		return false, m.taken(fmt.Errorf("%w: %w", ErrExtendFailed, holdfast.ErrLost))
	}
	until := began.Add(m.expiry - time.Duration(float64(m.expiry)*m.driftFactor) -
		2*time.Millisecond)
	if !time.Now().Before(until) {
		return false, errors.Join(ErrExtendFailed, holdfast.ErrLost)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until = until
	return true, nil
}

func (m *Mutex) claim(owner string) driver.Claim {
	return driver.Claim{Key: m.name, Owner: owner, TTL: m.expiry}
}

// or returns the background context for one that is nil, as the old library does.
func or(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
