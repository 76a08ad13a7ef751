package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithPrefix("app/"), holdfast.WithLabel("nightly"))
		if e, err := l.Inspect(background, "report"); err != nil || e.Key != "report" ||
			e.Holder.Owner != "" {
			t.Errorf("a free key gives %+v, %v; want its name alone", e, err)
		}
		lock := b.acquire(l, "report")
		e, err := l.Inspect(background, "report")
		if err != nil || e.Key != "report" || e.Holder.Token != lock.Token() ||
			driver.ParseOwner(e.Holder.Owner).Label != "nightly" {
			t.Errorf("a held key gives %+v, %v; want its holder, with token and label", e, err)
		}

		faults.Freeze()
		_, err = l.Inspect(background, "report")
		if !errors.Is(err, holdfast.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a frozen backend gives %v, want ErrUnknown", err)
		}
		ctx, cancel := context.WithTimeout(background, time.Millisecond)
		defer cancel()
		if _, err = l.Inspect(ctx, "report"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an ended context gives %v, want DeadlineExceeded", err)
		}
		faults.Thaw()
		b.release(lock)

		if _, err = l.Inspect(background, ""); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("no key gives %v, want ErrInvalid", err)
		}
		l.Close()
		if _, err = l.Inspect(background, "report"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("a closed Locker gives %v, want ErrClosed", err)
		}
	})
}

// unasked is a backend that nobody may ask.
type unasked struct {
	driver.Backend
	driver.Inspector
}

func TestInspectWithAnEndedContextAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.lockerOn(unasked{Backend: b.memory}) // it panics
		ended, cancel := context.WithCancel(background)
		cancel()
		if _, err := l.Inspect(ended, "report"); !errors.Is(err, context.Canceled) {
			t.Errorf("an ended context gives %v, want Canceled", err)
		}
	})
}

// opaque is a backend that shows nothing.
type opaque struct{ driver.Backend }

func TestInspectOfWhatShowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.lockerOn(opaque{b.memory})
		if _, err := l.Inspect(background, "report"); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	})
}

func TestExclusiveOnALockerThatSharesOrHasPermits(t *testing.T) {
	for _, option := range []holdfast.Option{holdfast.WithShared(), holdfast.WithPermits(2)} {
		backend := memhold.New()
		l, err := holdfast.New(backend, option)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := l.Acquire(background, "report", holdfast.WithExclusive())
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.TryAcquire(background, "report", holdfast.WithExclusive())
		if !errors.Is(err, holdfast.ErrHeld) || lock.Slot() != -1 {
			t.Errorf("slot %d; a second one gives %v, want ErrHeld", lock.Slot(), err)
		}
		e, err := l.Inspect(background, "report")
		if err != nil || e.Holder.Owner == "" {
			t.Errorf("%+v, %v: want one holder that does not share", e, err)
		}
		lock.Release(background)
		l.Close()
		backend.Close()
	}
}
