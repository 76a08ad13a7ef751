package holdfast

import (
	"context"
	"fmt"
	"maps"
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
	var refusal error // the last answer
	for attempt := 0; ; attempt++ {
		r := l.request(context.Background(), requestTime(claim.TTL))
		_, err := r.release(claim)
		if err == nil {
			return
		}
		err = r.explain(err) // before the pause: explain takes an error after the end for no answer
		switch {
		case !isUnknown(err):
			refusal = err
		case refusal != nil:
			err = fmt.Errorf("%w; before that: %v", err, refusal)
		}
		if clock.Now() >= until || driver.Permanent(err) || !l.sleep(backoff(attempt)) {
			key := l.userKey(claim.Key)
			l.warn("holdfast: key left to its TTL", "key", key, "error", err)
			// A request that was given up may have been in the network until then, and the backend
			// counts the TTL from when the request arrives.
			l.unreleased.add(key, keyError("release", key, err), until.Add(claim.TTL))
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

// unreleased is the keys that could not be released, until their TTLs have ended. Several releases
// of one key count once.
type unreleased struct {
	mu   sync.Mutex
	keys map[string]unreleasedKey
	room int // add prunes the keys when there are as many as this
}

type unreleasedKey struct {
	err   error
	until clock.Instant
}

func (u *unreleased) add(key string, err error, until clock.Instant) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.keys) >= u.room {
		// Prune only when full, and then grow: pruning for each key would take quadratic time.
		u.prune()
		u.room = 2*len(u.keys) + 1
	}
	if u.keys == nil {
		u.keys = make(map[string]unreleasedKey)
	}
	if k, ok := u.keys[key]; !ok || until > k.until {
		u.keys[key] = unreleasedKey{err, until}
	}
}

// errors returns an error for each key, in the order of the keys.
func (u *unreleased) errors() (errs manyErrors) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.prune()
	for _, key := range slices.Sorted(maps.Keys(u.keys)) {
		errs = append(errs, u.keys[key].err)
	}
	return errs
}

// prune drops the keys whose TTL has ended. The caller holds u.mu.
func (u *unreleased) prune() {
	now := clock.Now()
	maps.DeleteFunc(u.keys, func(_ string, k unreleasedKey) bool { return now >= k.until })
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
