package holdfast

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// The number of events that wait is bounded, even if there is always a new one.
func TestObserversDoNotGrow(t *testing.T) {
	var log bytes.Buffer
	o := observer{logger: slog.New(slog.NewTextHandler(&log, nil))}
	const events = 100_000
	done := make(chan int)
	told, largest := 0, 0
	var event func()
	event = func() { // a hook that calls the Locker, or a Locker that is used
		told++
		if told == events {
			o.mu.Lock()
			largest = cap(o.events)
			o.mu.Unlock()
			done <- largest
			return
		}
		o.tell(event)
	}
	o.tell(event)
	if largest := <-done; largest > 4*maxUntold {
		t.Errorf("the list has room for %d after %d events, though one waits at a time",
			largest, events)
	}
}

// Dropped events are reported even if there is always a new event.
func TestDroppedEventsAreTold(t *testing.T) {
	var log bytes.Buffer
	o := observer{logger: slog.New(slog.NewTextHandler(&log, nil))}
	start, done := make(chan struct{}), make(chan struct{})
	o.tell(func() { <-start })
	told := 0
	var event func()
	event = func() {
		if told++; told == 100_000 {
			close(done)
			<-start // for ever; the log is looked at now
			return
		}
		o.tell(event)
	}
	o.tell(event)
	for range 2 * maxUntold {
		o.tell(func() {})
	}
	start <- struct{}{}
	<-done
	if !strings.Contains(log.String(), "dropped") {
		o.mu.Lock()
		t.Errorf("%d events were dropped, %d told since, and the log says nothing", o.dropped, told)
		o.mu.Unlock()
	}
	close(start)
}

// If the logger hangs, the goroutine that drops a message does not wait for it.
func TestDroppedMessagesWaitForNoLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		o := observer{logger: slog.New(hanging{slog.NewTextHandler(io.Discard, nil), until})}
		for range maxUntold + 10 {
			o.tell(func() { o.note(slog.LevelWarn, "message") })
		}
		close(until)
	})
}

// hanging is a handler that waits until the channel is closed.
type hanging struct {
	slog.Handler
	until chan struct{}
}

func (h hanging) Handle(context.Context, slog.Record) error {
	<-h.until
	return nil
}

// While there are always more events than can be told, the log says so now and then.
func TestDroppedEventsAreToldNowAndThen(t *testing.T) {
	var log bytes.Buffer
	o := observer{logger: slog.New(slog.NewTextHandler(&log, nil))}
	const events = 30_000
	done, end := make(chan struct{}), make(chan struct{})
	told := 0
	var event func()
	event = func() {
		if told++; told == events {
			close(done)
			<-end // the log is looked at now
		}
		if told < events {
			o.tell(event)
			o.tell(event)
		}
	}
	o.tell(event)
	<-done
	defer close(end)
	if n := strings.Count(log.String(), "dropped"); n < 2 || n > events/maxUntold+1 {
		t.Errorf("the log tells %d times that events were dropped", n)
	}
}

// Only a lock that is still held when its handle is garbage is reported. A released or lost one is
// not, even if it was lost at its maximum hold and its lease goes on.
func TestForgottenLockMustBeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memhold.New()
		defer memory.Close()
		var log bytes.Buffer
		l, err := New(memory, WithTTL(time.Second),
			WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		locks := make(map[string]*Lock)
		for _, key := range []string{"released", "lost", "held", "overdue"} {
			var options []AcquireOption
			if key == "overdue" {
				options = append(options, WithMaxHold(time.Second))
			}
			if locks[key], err = l.Acquire(t.Context(), key, options...); err != nil {
				t.Fatal(err)
			}
		}
		if err := locks["released"].Release(t.Context()); err != nil {
			t.Error(err)
		}
		memory.Faults().Lose("lost")
		<-locks["lost"].Done()
		<-locks["overdue"].Done()
		for _, lock := range locks {
			lock.root.forgotten()
		}
		synctest.Wait()
		for key, want := range map[string]int{"released": 0, "lost": 0, "overdue": 0, "held": 1} {
			if n := strings.Count(log.String(),
				"never released and is garbage now; it holds its key until it is lost or the Locker is closed\" key="+key); n != want {
				t.Errorf("the lock that is %s was told of %d times, want %d:\n%s", key, n, want,
					log.String())
			}
		}
	})
}

// slowRelease is a backend that releases when it is told to, however long that takes.
type slowRelease struct {
	*memhold.Backend
	asked, until chan struct{}
}

func (s slowRelease) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	close(s.asked)
	<-s.until
	return s.Backend.Release(context.WithoutCancel(ctx), c)
}

// A lock whose Release is under way does not count as forgotten, even if that is the last use of
// it.
func TestLockIsInUseUntilReleaseReturns(t *testing.T) {
	backend := slowRelease{memhold.New(), make(chan struct{}), make(chan struct{})}
	defer backend.Close()
	l, err := New(backend, WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	garbage, released := make(chan string, 10), make(chan error)
	go func() {
		lock, err := l.Acquire(context.Background(), "key")
		if err != nil {
			t.Error(err)
		}
		runtime.AddCleanup(lock, func(what string) { garbage <- what }, "lock")
		released <- lock.Release(context.Background())
	}()
	<-backend.asked
	for range 3 { // a collection finds them, and reports them in any order
		runtime.AddCleanup(new([64]byte), func(what string) { garbage <- what }, "other")
		runtime.GC()
		if what := <-garbage; what == "lock" {
			t.Error("the lock was collected while it was being released")
			break
		}
	}
	close(backend.until)
	if err := <-released; err != nil {
		t.Error(err)
	}
}
