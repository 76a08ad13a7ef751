package withfiber

import (
	"context"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// play runs f in a bubble, where time is exact and costs nothing.
func play(t *testing.T, f func(t *testing.T, l *Locker)) {
	synctest.Test(t, func(t *testing.T) {
		memory := memhold.New()
		defer memory.Close()
		locker, err := holdfast.New(memory, holdfast.WithTTL(time.Second),
			holdfast.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close()
		l, err := New(locker, 0, WithOnError(func(string, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		f(t, l)
	})
}

// What is not locked any more takes no memory: there is a new key for every request.
func TestNothingStays(t *testing.T) {
	play(t, func(t *testing.T, l *Locker) {
		if err := l.Lock("k"); err != nil {
			t.Fatal(err)
		}
		if len(l.held) != 1 {
			t.Errorf("%d keys after Lock, want 1", len(l.held))
		}
		if err := l.Unlock("k"); err != nil {
			t.Fatal(err)
		}
		if len(l.held) != 0 {
			t.Errorf("%d keys after Unlock, want none", len(l.held))
		}
	})
}

// ending is a context of the caller's own kind, which says when it ends.
type ending struct {
	context.Context
	ends func()
}

// Value hides that there is a context of package context, which would not be asked for AfterFunc.
func (e ending) Value(any) any { return nil }

func (e ending) AfterFunc(f func()) (stop func() bool) {
	end := context.AfterFunc(e.Context, f)
	return func() bool {
		e.ends()
		return end()
	}
}

// Contexts of the caller's own kind, which end with a lock, are called without the mutex of all
// keys. Whether it is the caller of the Locker that ends them is up to the scheduler, so there are
// many tries.
func TestContextsEndWithoutTheMutex(t *testing.T) {
	for name, call := range map[string]func(*Locker){
		"Held":   func(l *Locker) { l.Held("k") },
		"Unlock": func(l *Locker) { l.Unlock("k") },
	} {
		play(t, func(t *testing.T, l *Locker) {
			for range 100 {
				if err := l.Lock("k"); err != nil {
					t.Fatal(err)
				}
				lock := l.Held("k")
				ctx, cancel := context.WithCancel(t.Context())
				lock.Context(ending{ctx, func() {
					if !strings.Contains(string(debug.Stack()), "(*Locker)."+name+"(") {
						return // it is another goroutine, which may just miss the mutex
					}
					if !l.mu.TryLock() {
						t.Errorf("%s has the mutex while a context ends", name)
						return
					}
					l.mu.Unlock()
				}})
				time.Sleep(time.Until(lock.Deadline()))
				call(l)
				synctest.Wait()
				l.Unlock("k")
				cancel()
			}
		})
	}
}

// A lock that another Unlock takes while the first one looks at it is released once.
func TestUnlockOfWhatAnotherTakes(t *testing.T) {
	play(t, func(t *testing.T, l *Locker) {
		for range 100 {
			if err := l.Lock("k"); err != nil {
				t.Fatal(err)
			}
			lock := l.Held("k")
			ctx, cancel := context.WithCancel(t.Context())
			var once sync.Once
			var inner error
			lock.Context(ending{ctx, func() { once.Do(func() { inner = l.Unlock("k") }) }})
			time.Sleep(time.Until(lock.Deadline()))
			outer := l.Unlock("k")
			synctest.Wait()
			if (inner == nil) == (outer == nil) {
				t.Fatalf("Unlock = %v, the other one %v; want that one is told of the loss", outer, inner)
			}
			cancel()
		}
	})
}

// A handler may release its lock early. Then Unlock has nothing to do, and nothing to complain of.
func TestUnlockAfterAReleaseByTheHandler(t *testing.T) {
	play(t, func(t *testing.T, l *Locker) {
		if err := l.Lock("k"); err != nil {
			t.Fatal(err)
		}
		if err := l.Held("k").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock("k"); err != nil || len(l.held) != 0 {
			t.Errorf("Unlock = %v, and %d keys are left; want nil and none", err, len(l.held))
		}
	})
}
