package holdfast_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// callers records whose context the hooks get. Each caller's context has the caller's name.
type callers struct {
	mu    sync.Mutex
	lines []string
}

type callerKey struct{}

// of returns the context of a caller.
func (*callers) of(name string) context.Context {
	return context.WithValue(background, callerKey{}, name)
}

// impatient returns a context of a caller that ends soon.
func (c *callers) impatient(t *testing.T, name string) context.Context {
	ctx, cancel := context.WithTimeout(c.of(name), 500*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func (c *callers) told(event, key string, ctx context.Context) {
	var name any = "a caller without a context"
	if ctx != nil {
		name = ctx.Value(callerKey{})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, fmt.Sprintf("%s %q for %v", event, key, name))
}

func (c *callers) hooks() holdfast.Hooks {
	return holdfast.Hooks{
		Acquired: func(e holdfast.AcquiredEvent) { c.told("acquired", e.Key, e.Context) },
		Refused:  func(e holdfast.RefusedEvent) { c.told("refused", e.Key, e.Context) },
		Waiting:  func(e holdfast.WaitingEvent) { c.told("waiting for", e.Key, e.Context) },
	}
}

// expect compares what hooks were told since the last call of expect. Repetitions count once.
func (c *callers) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := slices.Compact(c.lines); !slices.Equal(got, want) {
		t.Errorf("hooks were told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	c.lines = nil
}

// The events of an acquisition have the context of the one who asked for it.
func TestHooksHaveTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var c callers
		l, _ := b.locker(holdfast.WithHooks(c.hooks()))
		other, _ := b.locker()
		b.acquire(other, "taken")
		b.acquire(other, "full", holdfast.WithPermits(1))

		lock, err := l.Acquire(c.of("a"), "key")
		mustBe(t, err, nil)
		c.expect(t, `acquired "key" for a`)
		go l.Acquire(c.of("b"), "key")
		synctest.Wait()
		b.release(lock)
		c.expect(t, `acquired "key" for b`)

		l.TryAcquire(c.of("c"), "taken")
		c.expect(t, `refused "taken" for c`)
		l.Acquire(c.impatient(t, "d"), "taken")
		c.expect(t, `waiting for "taken" for d`, `refused "taken" for d`)
		l.Acquire(c.impatient(t, "e"), "full", holdfast.WithPermits(1))
		c.expect(t, `waiting for "full" for e`, `refused "full" for e`)

		_, err = l.Acquire(c.of("f"), "doc", holdfast.WithShared())
		mustBe(t, err, nil)
		_, err = l.Acquire(c.of("g"), "doc", holdfast.WithShared())
		mustBe(t, err, nil)
		c.expect(t, `acquired "doc" for f`, `acquired "doc" for g`)
		_, err = l.Acquire(c.of("h"), "free", holdfast.WithPermits(1))
		mustBe(t, err, nil)
		c.expect(t, `acquired "free" for h`)

		_, err = l.AcquireAll(c.of("i"), []string{"s1", "s2"})
		mustBe(t, err, nil)
		c.expect(t, `acquired "s1" for i`, `acquired "s2" for i`)
		l.TryAcquireAll(c.of("j"), []string{"s3", "taken"})
		c.expect(t, `refused "taken" for j`)
		l.AcquireAll(c.of("k"), nil)
		c.expect(t, `refused "" for k`)

		l.Acquire(c.of("m"), "")
		c.expect(t, `refused "" for m`)
		var none context.Context
		l.Acquire(none, "key")
		l.AcquireAll(none, []string{"key"})
		c.expect(t, `refused "key" for a caller without a context`)
	})
}

// The time of a grant is that of the grant: it does not depend on when the hook is called.
func TestHooksAreToldWhenALockWasGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		granted := make(map[string]time.Duration)
		start := time.Now()
		l, _ := b.locker(holdfast.WithHooks(holdfast.Hooks{
			Acquired: func(e holdfast.AcquiredEvent) {
				granted[e.Key] = e.Granted.Sub(start)
				time.Sleep(time.Minute)
			},
		}))
		other, _ := b.locker()
		taken := b.acquire(other, "b")
		time.AfterFunc(3*time.Second, func() { b.release(taken) })
		b.releaseAll(b.acquireAll(l, []string{"a", "b"}))
		b.release(b.acquire(l, "c"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		want := map[string]time.Duration{"a": 0, "b": 3 * time.Second, "c": 3 * time.Second}
		if !maps.Equal(granted, want) {
			t.Errorf("granted after %v, want %v", granted, want)
		}
	})
}
