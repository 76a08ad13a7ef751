package redsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// longestByValue is how long a request by value may take. A Locker gives its own as long.
const longestByValue = 5 * time.Second

// owner returns the owner value of the lock's holder if it has the value of this Mutex: as its
// label or, if the old library has written it, as a whole. Otherwise it returns "". rest is what
// remains of the lease; 0 if that is not known. failed is what has failed if there is no answer.
func (m *Mutex) owner(ctx context.Context, failed error) (s *site, owner string,
	rest time.Duration, err error) {
	value := m.Value()
	if value == "" {
		return nil, "", 0, nil
	}
	ctx = or(ctx)
	if s, err = m.redsync.site(ctx, m); err != nil {
		return nil, "", 0, err
	}
	entry, err := s.locker.Inspect(ctx, m.name)
	if err != nil {
		return nil, "", 0, m.noAnswer(failed, err)
	}
	holder := driver.ParseOwner(entry.Holder.Owner)
	if holder.Value != value && holder.Label != value {
		return s, "", 0, nil
	}
	return s, holder.Value, entry.Holder.ExpiresIn, nil
}

// unlockByValue releases a lock that another Mutex has acquired. The backend compares the owner
// value again, so it releases no lock that somebody else has by then.
func (m *Mutex) unlockByValue(ctx context.Context) (bool, error) {
	s, owner, _, err := m.owner(ctx, ErrFailed)
	switch {
	case err != nil:
		return false, err
	case owner == "":
		return false, fmt.Errorf("%w: nobody holds %q with the value %q", ErrLockAlreadyExpired,
			m.name, m.Value())
	}
	ctx, cancel := context.WithTimeout(or(ctx), min(m.expiry, longestByValue))
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

// extendByValue renews a lock that another Mutex has acquired. It leaves a lease alone that lasts
// longer than the renewed one would: the holder relies on that.
func (m *Mutex) extendByValue(ctx context.Context) (bool, error) {
	if m.expiry < holdfast.MinTTL {
		return false, fmt.Errorf("redsync: %w: expiry %v: must be at least %v", holdfast.ErrInvalid,
			m.expiry, holdfast.MinTTL)
	}
	began := time.Now()
	s, owner, rest, err := m.owner(ctx, ErrExtendFailed)
	switch {
	case err != nil:
		return false, err
	case owner == "":
		return false, m.taken(fmt.Errorf("%w: %w", ErrExtendFailed, holdfast.ErrLost))
	case rest <= m.expiry:
		began = time.Now()
		if err := m.renewByValue(ctx, s, owner); err != nil {
			return false, err
		}
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

// renewByValue has the lease of the owner value last for the expiry from now. It fails with
// ErrInvalid if the backend does not allow that TTL.
func (m *Mutex) renewByValue(ctx context.Context, s *site, owner string) error {
	if limited, ok := s.backend.(driver.Limited); ok {
		if err := limited.CheckTTL(m.expiry); err != nil {
			return fmt.Errorf("redsync: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(or(ctx), min(m.expiry, longestByValue))
	defer cancel()
	results, err := s.backend.Renew(ctx, []driver.Claim{m.claim(owner)})
	if err == nil {
		err = results[0].Err
	}
	switch {
	case err != nil:
		return m.noAnswer(ErrExtendFailed, err)
	case results[0].State != driver.Held:
		return m.taken(fmt.Errorf("%w: %w", ErrExtendFailed, holdfast.ErrLost))
	}
	return nil
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
