package holdfast_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// FuzzKey: a key is either refused as invalid, or it can be locked, excludes itself and no other
// key, and leaves nothing behind.
func FuzzKey(f *testing.F) {
	f.Add("lock:", "invoice/42", "invoice/43")
	f.Add("", "", "a")
	f.Add("p", "\x00", "\x00\x00")
	f.Add("{", "a}b", "\xff\xfe")
	f.Fuzz(func(t *testing.T, prefix, key, other string) {
		memory := memhold.New()
		defer memory.Close()
		l, err := holdfast.New(memory, holdfast.WithPrefix(prefix))
		if len(prefix) >= 1024 {
			mustBe(t, err, holdfast.ErrInvalid)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		rival, err := holdfast.New(memory, holdfast.WithPrefix(prefix))
		if err != nil {
			t.Fatal(err)
		}
		defer rival.Close()

		lock, err := l.TryAcquire(background, key)
		if valid := len(key) >= 1 && len(prefix)+len(key) <= 1024; (err == nil) != valid ||
			!valid && !errors.Is(err, holdfast.ErrInvalid) {
			t.Fatalf("key of %d bytes behind a prefix of %d: %v; want ErrInvalid if not 1 to 1,024",
				len(key), len(prefix), err)
		}
		if err != nil {
			return
		}
		if lock.Key() != key {
			t.Errorf("key %q is %q on the lock", key, lock.Key())
		}
		if _, err := rival.TryAcquire(background, key); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("second acquisition of %q: %v, want ErrHeld", key, err)
		}
		if second, err := rival.TryAcquire(background, other); err == nil {
			if other == key {
				t.Errorf("key %q was locked twice", key)
			}
			second.Release(background)
		}
		if err := lock.Release(background); err != nil {
			t.Error(err)
		}
		for entry := range memory.List(background, "") {
			t.Errorf("left behind: %q", entry.Key)
		}
	})
}
