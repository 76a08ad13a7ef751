package fence_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/memhold"
)

// newLockers returns Lockers on one backend, as processes have them.
func newLockers(t *testing.T, n int) []*holdfast.Locker {
	t.Helper()
	backend := memhold.New()
	t.Cleanup(func() { backend.Close() })
	lockers := make([]*holdfast.Locker, n)
	for i := range lockers {
		l, err := holdfast.New(backend)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		lockers[i] = l
	}
	return lockers
}

func acquire(t *testing.T, l *holdfast.Locker, options ...holdfast.AcquireOption) *holdfast.Lock {
	t.Helper()
	lock, err := l.TryAcquire(t.Context(), "pool", options...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func release(t *testing.T, locks ...*holdfast.Lock) {
	t.Helper()
	for _, lock := range locks {
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestReadersAreComparedWithWriters compares the tokens of readers with what writers wrote, as
// docs/fencing.md says. All readers are served until a later writer has written, and then none.
func TestReadersAreComparedWithWriters(t *testing.T) {
	var register fence.Register
	lockers := newLockers(t, 3)
	write := func(token fence.Token) error { return register.Do(t.Context(), "pool", token, nil) }
	served := func(reader *holdfast.Lock) bool { return reader.Token() >= register.Newest("pool") }

	writer := acquire(t, lockers[0])
	if err := write(writer.Token()); err != nil {
		t.Fatal(err)
	}
	if err := writer.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	readers := []*holdfast.Lock{writer}
	for _, l := range lockers[1:] {
		readers = append(readers, acquire(t, l, holdfast.WithShared()))
	}
	for i, reader := range readers {
		if !served(reader) {
			t.Errorf("reader %d has the token %d, less than %d of the writer before it", i,
				reader.Token(), register.Newest("pool"))
		}
	}
	release(t, readers...)
	later := acquire(t, lockers[1])
	for i, reader := range readers {
		if !served(reader) {
			t.Errorf("reader %d is refused, and the later writer has not written", i)
		}
	}
	if err := write(later.Token()); err != nil {
		t.Fatal(err)
	}
	for i, reader := range readers {
		if served(reader) {
			t.Errorf("reader %d has the token %d, and %d of the later writer does not refuse it", i,
				reader.Token(), register.Newest("pool"))
		}
	}
	release(t, later)
}

// TestReadersAreNotRemembered shows why: two readers may come in any order, and a guard that
// remembers would refuse one that has lost nothing.
func TestReadersAreNotRemembered(t *testing.T) {
	var register fence.Register
	lockers := newLockers(t, 2)
	first := acquire(t, lockers[0], holdfast.WithShared())
	second := acquire(t, lockers[1], holdfast.WithShared())
	older, newer := min(first.Token(), second.Token()), max(first.Token(), second.Token())
	if older == newer {
		t.Fatalf("both have the token %d: this shows nothing", newer)
	}
	if err := register.Do(t.Context(), "pool", newer, nil); err != nil {
		t.Fatal(err)
	}
	if err := register.Do(t.Context(), "pool", older, nil); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the reader with the smaller token = %v; want ErrStale", err)
	}
	for i, reader := range []*holdfast.Lock{first, second} {
		if err := reader.Err(); err != nil {
			t.Errorf("reader %d has lost the lock: %v", i, err)
		}
	}
	release(t, first, second)
}

// TestPermitsAreGuardedBySlotAndToken: holders of permits write under a name for each slot. A
// holder that was overtaken in its slot is refused there, whatever the tokens of other slots are.
func TestPermitsAreGuardedBySlotAndToken(t *testing.T) {
	var register fence.Register
	lockers := newLockers(t, 3)
	write := func(permit *holdfast.Lock) error {
		return register.Do(t.Context(), slot(permit.Slot()), permit.Token(), nil)
	}
	permits := holdfast.WithPermits(2)
	first, second := acquire(t, lockers[0], permits), acquire(t, lockers[1], permits)
	if first.Slot() == second.Slot() {
		t.Fatalf("two permits of slot %d", first.Slot())
	}
	for _, permit := range []*holdfast.Lock{second, first, second} {
		if err := write(permit); err != nil {
			t.Errorf("slot %d: %v", permit.Slot(), err)
		}
	}
	release(t, first)
	later := acquire(t, lockers[2], permits)
	if later.Slot() != first.Slot() {
		t.Fatalf("slot %d: want %d, which is free", later.Slot(), first.Slot())
	}
	for _, step := range []struct {
		permit *holdfast.Lock
		want   error
	}{{first, nil}, {later, nil}, {first, fence.ErrStale}, {second, nil}} {
		if err := write(step.permit); !errors.Is(err, step.want) {
			t.Errorf("slot %d, token %d: %v; want %v", step.permit.Slot(), step.permit.Token(), err,
				step.want)
		}
	}
	release(t, second, later)
}
