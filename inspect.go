package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect says who holds the key and who waits for it, as the backend shows it. Both may have
// changed when Inspect returns: never decide by it whether to enter a section. The Entry has the
// key as it was given, without the prefix. A key that nobody holds or waits for gives an Entry with
// only Key set.
//
// Inspect asks once. It fails with the error of ctx, ErrUnavailable or ErrUnknown if there is no
// answer; with ErrInvalid for a nil ctx or a bad key, and if the backend cannot be inspected
// (driver.Inspector); with ErrClosed after Close.
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
	}
	r := l.request(ctx, requestTime(l.config.ttl))
	entry, err := r.inspect(backend, full)
	if err = r.explain(err); err != nil {
		return driver.Entry{}, keyError("inspect", key, err)
	}
	entry.Key = key
	return entry, nil
}
