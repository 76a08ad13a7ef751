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

// cleanUp releases a claim in the background. It is called if an acquisition was given up, a lease
// has ended without an answer, or a release was not confirmed. The caller may raise tasks.
func (l *Locker) cleanUp(claim driver.Claim) {
	l.tasks.Go(func() { l.releaseUntilAnswered(claim) })
}

// releaseUntilAnswered repeats the release until it is answered, for at most the TTL and
// maxRequestTime. It stops early if the error is permanent or the Locker's life ends. If there was
// no answer, the key stays until its TTL ends, and Close reports the key.
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
			// A request that was given up may have been in the network until then, and the backend
			// counts the TTL from when the request arrives.
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

// unreleased is the keys that could not be released, until their TTLs have ended.
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
		// Prune only when full, and then grow: pruning for each key would take quadratic time.
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

// prune drops the keys whose TTL has ended. The caller holds u.mu.
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

// manyErrors is several errors as one. errors.Is and errors.As look at all of them; the text has
// the first few.
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
