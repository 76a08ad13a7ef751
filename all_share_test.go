package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// A set may read some keys and write others.
func TestAllWithSharedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		mixed := holdfast.WithSharedKeys("config", "users")
		set := b.acquireAll(l, []string{"users", "orders", "config"}, mixed)
		reader := b.acquireAll(other, []string{"config", "users"}, holdfast.WithShared())
		b.mustBeHeld(other, "config")
		b.mustBeHeld(other, "orders")
		_, err := other.TryAcquireAll(background, []string{"config", "orders"},
			holdfast.WithSharedKeys("config", "orders"))
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Key != "orders" {
			t.Errorf("got error %v, want a HeldError of \"orders\"", err)
		}
		second := b.acquireAll(l, []string{"users", "config"}, holdfast.WithShared())
		if second.Token("users") != set.Token("users") {
			t.Error("two sets whose keys share a lease have different tokens for \"users\"")
		}
		b.releaseAll(set)
		b.releaseAll(second)
		b.mustBeHeld(l, "config") // other still reads
		b.releaseAll(reader)
		b.releaseAll(b.acquireAll(l, []string{"users", "config"}))
	})
}

// Writers of a key that a set reads wait, and so do sets that write it.
func TestAllSharedWaitForWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		writer := b.acquireAll(other, []string{"a", "b"})
		got := make(chan *holdfast.LockSet)
		for range 2 {
			go func() {
				set, err := l.AcquireAll(background, []string{"b", "c", "a"},
					holdfast.WithSharedKeys("a", "b", "c"))
				if err != nil {
					t.Error(err)
				}
				got <- set
			}()
		}
		synctest.Wait()
		b.releaseAll(writer)
		first, second := <-got, <-got // together
		b.releaseAll(first)
		b.releaseAll(second)
	})
}

func TestAllRefusesSharedKeysThatAreNotAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		_, err := l.AcquireAll(background, []string{"a", "b"}, holdfast.WithSharedKeys("a", "x"))
		mustBe(t, err, holdfast.ErrInvalid)
		_, err = l.Acquire(background, "a", holdfast.WithSharedKeys("a"))
		mustBe(t, err, holdfast.ErrInvalid)
		_, err = holdfast.New(b.memory, holdfast.WithSharedKeys("a"))
		mustBe(t, err, holdfast.ErrInvalid)
		lock, err := l.Acquire(background, "a", holdfast.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		ctx := lock.Context(background)
		_, err = l.AcquireAll(ctx, []string{"a", "b"}, holdfast.WithSharedKeys("b"))
		mustBe(t, err, holdfast.ErrInvalid) // it would wait for itself
		set, err := l.AcquireAll(ctx, []string{"a", "b"}, holdfast.WithSharedKeys("a"))
		if err != nil {
			t.Fatal(err)
		}
		b.releaseAll(set)
		if err := lock.Release(background); err != nil {
			t.Error(err)
		}
		b.releaseAll(b.acquireAll(l, []string{"a", "b"})) // nothing was left
	})
}

// releaser is a Lock or a LockSet.
type releaser interface{ Release(context.Context) error }

// If the context holds a key shared, an exclusive acquisition of that key is refused at once, also
// if it is the context of a set, or of a permit that was taken in the set. Nothing is held then.
func TestWritingInOnesOwnReadOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		set := b.acquireAll(l, []string{"a", "b"}, holdfast.WithSharedKeys("a"))
		permit, err := l.Acquire(set.Context(background), "a", holdfast.WithPermits(2))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		keys := []string{"0", "a", "b", "c"} // "a" is in the middle of what is asked for
		for from, ctx := range map[string]context.Context{
			"set": set.Context(background), "permit": permit.Context(set.Context(background)),
		} {
			for name, acquire := range map[string]func() (releaser, error){
				"Acquire":       func() (releaser, error) { return l.Acquire(ctx, "a") },
				"TryAcquire":    func() (releaser, error) { return l.TryAcquire(ctx, "a") },
				"AcquireAll":    func() (releaser, error) { return l.AcquireAll(ctx, keys) },
				"TryAcquireAll": func() (releaser, error) { return l.TryAcquireAll(ctx, keys) },
				"DoAll": func() (releaser, error) {
					return set, l.DoAll(ctx, keys, func(context.Context, *holdfast.LockSet) error {
						t.Errorf("DoAll in a %s has called its function", from)
						return nil
					})
				},
			} {
				got, err := acquire()
				if err == nil { // so that the test ends
					got.Release(background)
				}
				mustBe(t, err, holdfast.ErrInvalid)
				if err == nil || !strings.Contains(err.Error(), `"a" is held shared`) ||
					!strings.Contains(err.Error(), "wait for") {
					t.Errorf("%s in a %s: the error %v does not say what is held shared",
						name, from, err)
				}
			}
			b.mustBeFree(other, "0")
			b.mustBeFree(other, "c")
			inner, err := l.Acquire(ctx, "b") // that is held alone
			if err != nil {
				t.Fatal(err)
			}
			b.release(inner)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("refused after %v, want at once", took)
		}
		b.release(permit)
		b.releaseAll(set)
		b.releaseAll(b.acquireAll(l, keys))
	})
}

// A list without names changes nothing in a set, because a program may have computed it. Everywhere
// else the option is refused, even without names.
func TestWithSharedKeysWithoutNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		for name, keys := range map[string][]string{"none": nil, "an empty list": {}} {
			option := holdfast.WithSharedKeys(keys...)
			for call, acquire := range map[string]func() error{
				"Acquire": func() error {
					_, err := l.Acquire(background, "a", option)
					return err
				},
				"TryAcquire": func() error {
					_, err := l.TryAcquire(background, "a", option)
					return err
				},
				"Do": func() error {
					return l.Do(background, "a", func(context.Context, *holdfast.Lock) error {
						t.Error("Do called the function in spite of WithSharedKeys")
						return nil
					}, option)
				},
				"New": func() error {
					_, err := holdfast.New(b.memory, option)
					return err
				},
			} {
				err := acquire()
				if !errors.Is(err, holdfast.ErrInvalid) ||
					!strings.Contains(err.Error(), "WithSharedKeys()") {
					t.Fatalf("%s, %s: got %v, want ErrInvalid about WithSharedKeys()", call, name,
						err)
				}
			}
			set := b.acquireAll(l, []string{"a", "b"}, option)
			_, err := other.TryAcquire(background, "a", holdfast.WithShared())
			mustBe(t, err, holdfast.ErrHeld)
			b.releaseAll(set)
		}
	})
}
