package holdfast

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// cleanUp releases a claim in the background: one whose acquisition was given up, whose lease ended
// without an answer, or whose release was not confirmed. The caller may raise tasks.
func (l *Locker) cleanUp(claim driver.Claim) {
	l.tasks.Go(func() { l.releaseUntilAnswered(claim) })
}

// releaseUntilAnswered repeats the release until it is answered, for the TTL and maxRequestTime at
// most. It stops early if the backend refuses for good or the Locker's life ends. Without an answer
// the key is left to its TTL, and Close reports it.
func (l *Locker) releaseUntilAnswered(claim driver.Claim) {
	until := clock.Now().Add(claim.TTL + maxRequestTime)
	for attempt := 0; ; attempt++ {
		r := l.request(context.Background(), requestTime(claim.TTL))
		_, err := r.release(claim)
		if err == nil {
			return
		}
		if clock.Now() >= until || driver.Permanent(err) || !l.sleep(backoff(attempt)) {
			err = r.explain(err)
			l.warn("holdfast: key left to its TTL", "key", l.userKey(claim.Key), "error", err)
			// A request that was given up may have been on its way until then: the backend counts
			// the TTL from there.
			l.unreleased.add(keyError("release", l.userKey(claim.Key), err), until.Add(claim.TTL))
			return
		}
	}
}

// sleep waits for d, and reports false if the Locker's life ended.
func (l *Locker) sleep(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(l.life, d)
	defer cancel()
	<-ctx.Done()
	return l.life.Err() == nil
}

// unreleased knows the keys that were left to their TTLs, until these are over.
type unreleased struct {
	mu   sync.Mutex
	keys []unreleasedKey
}

type unreleasedKey struct {
	err   error
	until clock.Instant
}

func (u *unreleased) add(err error, until clock.Instant) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.keys) == cap(u.keys) {
		// Twice the size: pruning at every key would take time quadratic in their number.
		u.prune()
		u.keys = slices.Grow(u.keys, len(u.keys)+1)
	}
	u.keys = append(u.keys, unreleasedKey{err, until})
}

// errors returns an error for each key.
func (u *unreleased) errors() (errs manyErrors) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.prune()
	for _, k := range u.keys {
		errs = append(errs, k.err)
	}
	return errs
}

// prune forgets the keys whose time is over. The caller holds u.mu.
func (u *unreleased) prune() {
	now := clock.Now()
	kept := u.keys[:0]
	for _, k := range u.keys {
		if now < k.until {
			kept = append(kept, k)
		}
	}
	clear(u.keys[len(kept):])
	u.keys = kept
}

// manyErrors are several errors as one. errors.Is and errors.As look at all; the text names a few.
type manyErrors []error

// maxNamed is how many of many errors are written out.
const maxNamed = 5

func (e manyErrors) Error() string {
	var text strings.Builder
	for i, err := range e {
		if i == maxNamed {
			fmt.Fprintf(&text, "; and %d more", len(e)-i)
			break
		}
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(err.Error())
	}
	return text.String()
}

func (e manyErrors) Unwrap() []error { return e }
