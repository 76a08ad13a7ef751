package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// lines sends each line of the log to a channel.
type lines chan string

func (c lines) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

// If its holder no longer refers to a Lock, it can never be released, and the log says so.
func TestForgottenLockIsLogged(t *testing.T) {
	backend := memhold.New()
	defer backend.Close()
	log := make(lines, 10)
	l, err := holdfast.New(backend, holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx := forget(t, l, "forgotten", "released", "nested")
	runtime.GC()
	// If the others are reported too, they may come first.
	line := <-log
	if !strings.Contains(line, "key=forgotten") || !strings.Contains(line, "never released") {
		t.Errorf("the log says %q, want that the lock on \"forgotten\" was never released", line)
	}
	if ctx.Err() != nil {
		t.Errorf("the garbage collector has ended the lock: %v", context.Cause(ctx))
	}
	if _, err := l.TryAcquire(t.Context(), "forgotten"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("the garbage collector has freed the key: %v", err)
	}
}

// forget leaves three locks behind, of which the first is held, and returns a context of that.
//
//go:noinline
func forget(t *testing.T, l *holdfast.Locker, held, released, nested string) context.Context {
	t.Helper()
	acquire := func(ctx context.Context, key string) *holdfast.Lock {
		lock, err := l.Acquire(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
	if err := acquire(t.Context(), released).Release(t.Context()); err != nil {
		t.Error(err)
	}
	outer := acquire(t.Context(), nested)
	acquire(outer.Context(t.Context()), nested)
	if err := outer.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return acquire(t.Context(), held).Context(t.Context())
}

// If the holder of a set no longer refers to it, its locks are reported, although the set's
// contexts and the locks themselves refer to the set's inner part.
func TestForgottenSetIsLogged(t *testing.T) {
	backend := memhold.New()
	defer backend.Close()
	log := make(lines, 10)
	l, err := holdfast.New(backend, holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx := forgetSet(t, l)
	runtime.GC()
	told := <-log + <-log
	for _, key := range []string{"a", "b"} {
		if !strings.Contains(told, "key="+key) {
			t.Errorf("the log does not name %q:\n%s", key, told)
		}
	}
	if ctx.Err() != nil {
		t.Errorf("the garbage collector has ended the set: %v", context.Cause(ctx))
	}
}

//go:noinline
func forgetSet(t *testing.T, l *holdfast.Locker) context.Context {
	t.Helper()
	set, err := l.AcquireAll(t.Context(), []string{"b", "a"})
	if err != nil {
		t.Fatal(err)
	}
	if set.Lock("a") != set.Locks()[1] || set.Token("a") != set.Lock("a").Token() {
		t.Error("the set has other locks than it says")
	}
	return set.Context(t.Context())
}
