package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect asks the backend who holds the key and who waits for it. The answer may be out of date
// when Inspect returns, so it cannot replace a lock. The Entry has the key as it was given, without
// the prefix. If nobody holds the key or waits for it, only Key is set.
//
// Inspect makes one request, and ctx bounds the wait for its answer; if ctx has ended already, it
// makes none. If there is no answer, it fails with the error of ctx, ErrUnavailable or ErrUnknown.
// It fails with ErrInvalid if ctx is nil, the key is not allowed, or the backend cannot be
// inspected (driver.Inspector), and with ErrClosed after Close.
func (l *Locker) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	full, err := l.fullKey(key)
	if err != nil {
		return driver.Entry{}, err
	}
	backend, ok := l.backend.(driver.Inspector)
	switch {
	case ctx == nil:
		return driver.Entry{}, invalid("context is nil for %q: use context.Background()", key)
	case !ok:
		return driver.Entry{}, invalid("inspect %q: the backend %T does not show its keys "+
			"(driver.Inspector)", key, l.backend)
	case l.closed.Load():
		return driver.Entry{}, keyError("inspect", key, ErrClosed)
	case ctx.Err() != nil:
		return driver.Entry{}, keyError("inspect", key, contextError(ctx))
	}
	r := l.request(ctx, requestTime(l.config.ttl))
	entry, err := r.inspect(backend, full)
	if err = r.explain(err); err != nil {
		return driver.Entry{}, keyError("inspect", key, err)
	}
	entry.Key = key
	return entry, nil
}
