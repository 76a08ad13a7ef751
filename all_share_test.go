package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

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
			t.Error("two that share a lease have two tokens")
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

// A list without names says nothing of a set, which a program may have computed, and is a mistake
// wherever the option is.
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
						t.Error("Do called the function")
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
