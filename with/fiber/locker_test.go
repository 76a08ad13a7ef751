package withfiber_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/memhold"
	withfiber "github.com/holdfast-go/holdfast/with/fiber"
)

var (
	_ idempotency.Locker = (*withfiber.Locker)(nil)

	errShutdown = errors.New("the server shuts down")
)

const key = "6a2f41a3-c54c-fce8-32d2-0324e1c32e22"

// fleet is several processes that share one memory, for locks and for responses.
type fleet struct {
	*testing.T
	memory  *memhold.Backend
	storage *storage
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t, memhold.New(), &storage{}}
	t.Cleanup(func() { f.memory.Close() })
	return f
}

func (f *fleet) locker(options ...holdfast.Option) *holdfast.Locker {
	f.Helper()
	return f.lockerOf(f.memory.Client(), options...)
}

func (f *fleet) lockerOf(client *memhold.Backend, options ...holdfast.Option) *holdfast.Locker {
	f.Helper()
	locker, err := holdfast.New(client, options...)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		locker.Close()
		client.Close()
	})
	return locker
}

func (f *fleet) locks(locker *holdfast.Locker, wait time.Duration,
	options ...withfiber.Option) *withfiber.Locker {
	f.Helper()
	locks, err := withfiber.New(locker, wait, options...)
	if err != nil {
		f.Fatal(err)
	}
	return locks
}

// process is a server.
type process struct {
	*fleet
	app   *fiber.App
	locks *withfiber.Locker
	told  chan error
}

func (f *fleet) process(wait time.Duration, pay fiber.Handler) *process {
	f.Helper()
	p := &process{f, fiber.New(fiber.Config{ErrorHandler: conflict}), nil, make(chan error, 10)}
	p.locks = f.locks(f.locker(holdfast.WithTTL(time.Second)), wait,
		withfiber.WithOnError(func(k string, err error) {
			if k != key {
				f.Errorf("told of %q", k)
			}
			p.told <- err
		}))
	p.app.Use(idempotency.New(idempotency.Config{Lock: p.locks, Storage: f.storage}))
	p.app.Post("/pay", pay)
	return p
}

// conflict answers 409 to a request whose key is in use.
func conflict(c fiber.Ctx, err error) error {
	if errors.Is(err, holdfast.ErrHeld) {
		return c.Status(http.StatusConflict).SendString(err.Error())
	}
	return fiber.DefaultErrorHandler(c, err)
}

type response struct {
	status int
	body   string
}

// post sends a request, whose response arrives later.
func (p *process) post() <-chan response {
	arrived := make(chan response, 1)
	go func() {
		request := httptest.NewRequest(http.MethodPost, "/pay", nil)
		request.Header.Set("X-Idempotency-Key", key)
		r, err := p.app.Test(request, fiber.TestConfig{Timeout: testserver.Patience})
		if err != nil {
			p.Error(err)
			close(arrived)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			p.Error(err)
		}
		arrived <- response{r.StatusCode, string(body)}
	}()
	return arrived
}

// The second request waits for the first, and gets its response.
func TestHandlerRunsOnce(t *testing.T) {
	f := newFleet(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	a := f.process(time.Minute, func(c fiber.Ctx) error {
		close(entered)
		<-goOn
		return c.SendString("paid")
	})
	b := f.process(time.Minute, func(fiber.Ctx) error {
		t.Error("the handler ran again")
		return nil
	})
	first := a.post()
	<-entered
	second := b.post()
	testserver.Eventually(t, "the second one waits", func() error {
		entry, err := f.memory.Inspect(t.Context(), key)
		return errors.Join(err, testserver.Not(len(entry.Waiters) == 1, "%v", entry))
	})
	close(goOn)
	for _, arrived := range []<-chan response{first, second} {
		if r := <-arrived; r != (response{http.StatusOK, "paid"}) {
			t.Errorf("got %v", r)
		}
	}
}

func TestHeldWithoutWaiting(t *testing.T) {
	f := newFleet(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	a := f.process(0, func(c fiber.Ctx) error {
		close(entered)
		<-goOn
		return c.SendString("paid")
	})
	b := f.process(0, func(fiber.Ctx) error {
		t.Error("the handler ran again")
		return nil
	})
	first := a.post()
	<-entered
	if r := <-b.post(); r.status != http.StatusConflict || strings.Contains(r.body, key) ||
		strings.Contains(r.body, "pid") {
		t.Errorf("got %v; want 409, with neither the key nor who has it", r)
	}
	close(goOn)
	<-first
}

// The context of the handler ends. It returns an error, so nothing of it is stored.
func TestLossEndsTheHandler(t *testing.T) {
	f := newFleet(t)
	entered := make(chan struct{})
	var a *process
	a = f.process(0, func(c fiber.Ctx) error {
		lock := a.locks.Held(c.Get("X-Idempotency-Key"))
		if lock.Token() == 0 {
			t.Error("there is no token")
		}
		close(entered)
		ctx := lock.Context(c.Context())
		<-ctx.Done()
		return context.Cause(ctx)
	})
	first := a.post()
	<-entered
	f.memory.Faults().Give(key, "another", time.Hour)
	isLoss(t, "what is told", <-a.told)
	if r := <-first; r.status != http.StatusInternalServerError {
		t.Errorf("got %v, want that it failed", r)
	}
	if f.storage.n.Load() != 0 {
		t.Error("a response is stored")
	}
}

// A handler without the context runs on. Meanwhile the loss is reported.
func TestLossIsTold(t *testing.T) {
	f := newFleet(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	a := f.process(0, func(c fiber.Ctx) error {
		close(entered)
		<-goOn
		return c.SendString("paid")
	})
	first := a.post()
	<-entered
	f.memory.Faults().Give(key, "another", time.Hour)
	isLoss(t, "what is told", <-a.told)
	close(goOn)
	if r := <-first; r.body != "paid" {
		t.Errorf("got %v", r)
	}
}

// A request whose lock is lost does not release the lock of the next request.
func TestUnlockAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		locks := f.locks(f.locker(), 0, withfiber.WithOnError(func(string, error) {}))
		must(t, locks.Lock(key))
		lost := locks.Held(key)
		f.memory.Faults().Lose(key)
		<-lost.Done()
		synctest.Wait() // until then the key is taken: all are told first
		must(t, locks.Lock(key))
		lock := locks.Held(key)
		if lock == lost {
			t.Fatal("Held is the lock that was lost")
		}
		err := locks.Unlock(key)
		isLoss(t, "Unlock after a loss", err)
		if strings.Contains(err.Error(), key) {
			t.Errorf("fiber's log would have the key: %v", err)
		}
		if lock.Err() != nil || locks.Held(key) != lock {
			t.Errorf("the next lock has ended: %v", lock.Err())
		}
		must(t, locks.Unlock(key))
		if !errors.Is(lock.Err(), holdfast.ErrReleased) || locks.Held(key) != nil {
			t.Errorf("the next lock has not ended: %v", lock.Err())
		}
		must(t, locks.Unlock(key)) // of what is not locked, as in fiber's own
	})
}

// stopped is a context of the caller's own kind, which stops the first goroutine that is done with
// it.
type stopped struct {
	context.Context
	calls *atomic.Int64
	until chan struct{}
}

// Value hides that there is a context of package context, which would not be asked for AfterFunc.
func (s stopped) Value(any) any { return nil }

func (s stopped) AfterFunc(f func()) (stop func() bool) {
	end := context.AfterFunc(s.Context, f)
	return func() bool {
		if s.calls.Add(1) == 1 {
			<-s.until
		}
		return end()
	}
}

// A request is stopped when its lock was granted, until that is lost and another one has the lock.
// Its Unlock releases what it has lost, and the handler of the other one is told of its own lock.
func TestUnlockOfALockThatIsNotedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		ctx := stopped{t.Context(), new(atomic.Int64), make(chan struct{})}
		locks := f.locks(f.locker(holdfast.WithTTL(time.Second), holdfast.WithoutRenewal()),
			time.Minute, withfiber.WithOnError(func(string, error) {}), withfiber.WithContext(ctx))
		noted := make(chan error)
		go func() { noted <- locks.Lock(key) }()
		time.Sleep(2 * time.Second) // it is lost
		must(t, locks.Lock(key))
		held := locks.Held(key)
		close(ctx.until)
		must(t, <-noted)
		if locks.Held(key) != held {
			t.Error("the handler is told of the lock that another one has lost")
		}
		isLoss(t, "Unlock", locks.Unlock(key))
		if err := held.Err(); err != nil {
			t.Errorf("the lock of the other request has ended: %v", err)
		}
		must(t, locks.Unlock(key))
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		must(t, f.locks(f.locker(), 0).Lock(key))
		began := time.Now()
		var held *holdfast.HeldError
		err := f.locks(f.locker(), 5*time.Second).Lock(key)
		if took := time.Since(began); took != 5*time.Second || !errors.As(err, &held) {
			t.Errorf("Lock = %v after %v; want a HeldError after 5s", err, took)
		}
		client := f.memory.Client()
		defer client.Close()
		locker, err := holdfast.New(client)
		must(t, err)
		defer locker.Close()
		client.Faults().Freeze()
		defer client.Faults().Thaw()
		began = time.Now()
		err = f.locks(locker, 3*time.Second).Lock("other")
		if took := time.Since(began); took != 8*time.Second || errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("Lock = %v after %v; want that nobody answers within 8s", err, took)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errShutdown)
		defer cancel()
		err = f.locks(f.locker(), time.Minute, withfiber.WithContext(ctx)).Lock(key)
		if !errors.Is(err, errShutdown) {
			t.Errorf("Lock = %v, want the cause of the context", err)
		}
	})
}

// The end of the context ends a wait, and does not keep a lock from being released.
func TestUnlockAfterTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		ctx, cancel := context.WithCancel(t.Context())
		locks := f.locks(f.locker(), 0, withfiber.WithContext(ctx))
		must(t, locks.Lock(key))
		cancel()
		must(t, locks.Unlock(key))
		must(t, f.locks(f.locker(), 0).Lock(key))
	})
}

// The text is that of what has happened to this lock, also if the context has ended because of
// another one. It never has the key, nor what the error says in full.
func TestTextOfErrors(t *testing.T) {
	const (
		taken = "withfiber: another request with this key is under way"
		over  = "withfiber: the server gives out no more locks"
		other = "withfiber: the backend of the locks does not answer, or refuses the key"
	)
	ended := func(cause error) func(f *fleet) error {
		return func(f *fleet) error {
			ctx, cancel := context.WithCancelCause(f.Context())
			cancel(cause)
			return f.locks(f.locker(), time.Minute, withfiber.WithContext(ctx)).Lock(key)
		}
	}
	long := strings.Repeat("k", 1025)
	lost := &holdfast.LostError{Key: "leader", Reason: errors.New("gone")}
	held := &holdfast.HeldError{Key: "leader"}
	for _, c := range []struct {
		text string
		is   error
		of   func(f *fleet) error
	}{
		{taken, holdfast.ErrHeld, func(f *fleet) error {
			must(f.T, f.locks(f.locker(), 0).Lock(key))
			return f.locks(f.locker(), 0).Lock(key)
		}},
		{over, errShutdown, ended(errShutdown)},
		{over, lost, ended(lost)},
		{over, held, ended(held)},
		{over, holdfast.ErrClosed, ended(holdfast.ErrClosed)},
		{over, holdfast.ErrClosed, func(f *fleet) error {
			locker := f.locker()
			locker.Close()
			return f.locks(locker, 0).Lock(key)
		}},
		{other, holdfast.ErrInvalid, func(f *fleet) error {
			return f.locks(f.locker(), 0).Lock(long)
		}},
		{other, holdfast.ErrUnavailable, func(f *fleet) error {
			client := f.memory.Client()
			locker := f.lockerOf(client)
			client.Close()
			return f.locks(locker, 0).Lock(key)
		}},
		{other, holdfast.ErrUnknown, func(f *fleet) error {
			ctx, cancel := context.WithCancelCause(f.Context())
			client := f.memory.Client()
			locks := f.locks(f.lockerOf(client), 0, withfiber.WithContext(ctx))
			must(f.T, locks.Lock(key))
			cancel(lost)
			client.Faults().Freeze()
			defer client.Faults().Thaw()
			return locks.Unlock(key)
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			err := c.of(newFleet(t))
			if err == nil || err.Error() != c.text || !errors.Is(err, c.is) {
				t.Errorf("%v: the text is %v, want %q", c.is, err, c.text)
			}
		})
	}
}

// The context ends the last request, too: the one for who has the lock, or the only one.
func TestContextWithoutAnAnswer(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errShutdown)
			defer cancel()
			client := f.memory.Client()
			locks := f.locks(f.lockerOf(client), wait, withfiber.WithContext(ctx))
			client.Faults().Freeze()
			defer client.Faults().Thaw()
			began := time.Now()
			err := locks.Lock(key)
			if took := time.Since(began); took != 3*time.Second || !errors.Is(err, errShutdown) {
				t.Errorf("wait of %v: Lock = %v after %v, want the cause of the context after 3s",
					wait, err, took)
			}
		})
	}
}

// A client that leaves out the header gets an answer of the handler that the documentation shows.
func TestExampleWithoutTheHeader(t *testing.T) {
	f := newFleet(t)
	locks := f.locks(f.locker(), 0)
	app := fiber.New()
	app.Use(idempotency.New(idempotency.Config{Lock: locks, Storage: f.storage}))
	app.Post("/pay", pay("it", locks))
	r, err := app.Test(httptest.NewRequest(http.MethodPost, "/pay", nil))
	if err != nil || r.StatusCode != http.StatusBadRequest {
		t.Errorf("got %v, %v; want 400", r, err)
	}
}

// The log of a loss says why, and does not have the key.
func TestLogOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		defer slog.SetDefault(slog.Default())
		slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
		f := newFleet(t)
		locks := f.locks(f.locker(), 0, withfiber.WithOnError(nil))
		must(t, locks.Lock(key))
		lock := locks.Held(key)
		f.memory.Faults().Give(key, "another", time.Hour)
		<-lock.Done()
		synctest.Wait()
		var lost *holdfast.LostError
		if !errors.As(lock.Err(), &lost) {
			t.Fatalf("the lock has ended with %v", lock.Err())
		}
		if s := logged.String(); !strings.Contains(s, "level=WARN") ||
			!strings.Contains(s, lost.Reason.Error()) || strings.Contains(s, key) {
			t.Errorf("logged %q; want a warning with %q, without the key", s, lost.Reason)
		}
	})
}

// A program that closes its Locker is not told of what it has done.
func TestCloseIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		locker := f.locker()
		locks := f.locks(locker, 0, withfiber.WithOnError(func(_ string, err error) {
			t.Errorf("told of %v", err)
		}))
		must(t, locks.Lock(key))
		locker.Close()
		synctest.Wait()
	})
}

// Keys are copied, because fiber uses the memory of a request again.
func TestMemoryOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		locks := f.locks(f.locker(), 0, withfiber.WithOnError(func(k string, err error) {
			if k != key {
				t.Errorf("told of %q", k)
			}
		}))
		memory := []byte(key)
		reused := unsafe.String(&memory[0], len(memory))
		for range 3 {
			must(t, locks.Lock(reused))
			lost := locks.Held(key)
			f.memory.Faults().Lose(key)
			<-lost.Done()
			synctest.Wait() // a key that is still being released counts as taken
		}
		locks.Unlock(reused)
		clear(memory)
		if locks.Held(key) == nil {
			t.Error("the lock is not found")
		}
		synctest.Wait() // for what is told
	})
}

func TestOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		locks := f.locks(f.locker(), 0,
			withfiber.WithLockOptions(holdfast.WithTTL(time.Second), holdfast.WithShared()))
		must(t, locks.Lock(key))
		entry, err := f.memory.Inspect(t.Context(), key)
		if err != nil || entry.Holder.ExpiresIn != time.Second || len(entry.Sharers) != 0 {
			t.Errorf("%v, %v; want one holder for a second", entry, err)
		}
		must(t, locks.Unlock(key))
		var none context.Context
		for name, make := range map[string]func() (*withfiber.Locker, error){
			"no locker": func() (*withfiber.Locker, error) { return withfiber.New(nil, 0) },
			"negative":  func() (*withfiber.Locker, error) { return withfiber.New(f.locker(), -1) },
			"nil option": func() (*withfiber.Locker, error) {
				return withfiber.New(f.locker(), 0, nil)
			},
			"nil lock option": func() (*withfiber.Locker, error) {
				return withfiber.New(f.locker(), 0, withfiber.WithLockOptions(nil))
			},
			"nil context": func() (*withfiber.Locker, error) {
				return withfiber.New(f.locker(), 0, withfiber.WithContext(none))
			},
		} {
			if _, err := make(); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	})
}

// storage is one that all processes share.
type storage struct {
	fiber.Storage // nil: nothing else is called

	n    atomic.Int64
	data sync.Map
}

func (s *storage) GetWithContext(_ context.Context, key string) ([]byte, error) {
	v, ok := s.data.Load(key)
	if !ok {
		return nil, nil
	}
	return v.([]byte), nil
}

func (s *storage) SetWithContext(_ context.Context, key string, v []byte, _ time.Duration) error {
	s.n.Add(1)
	s.data.Store(key, v)
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isLoss(t *testing.T, what string, err error) {
	t.Helper()
	var lost *holdfast.LostError
	if !errors.As(err, &lost) {
		t.Errorf("%s is %v, want a LostError", what, err)
	}
}

// odd is a context that panics when it is asked for its channel for the last of some times.
type odd struct {
	context.Context
	left *int
}

func (o odd) Done() <-chan struct{} {
	if *o.left--; *o.left == 0 {
		panic("a fault of the caller's")
	}
	return o.Context.Done()
}

// If the context of WithContext panics, whenever that is, nobody has the lock.
func TestContextThatPanics(t *testing.T) {
	panics := 0
	for at := 1; at <= 10; at++ {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			left := at
			locks := f.locks(f.locker(), time.Second, withfiber.WithContext(odd{ctx, &left}))
			defer func() {
				if recover() != nil {
					panics++
				}
				if err := f.locks(f.locker(), 0).Lock(key); err != nil {
					t.Error(err)
				}
			}()
			if err := locks.Lock(key); err != nil {
				t.Error(err)
			}
			left = 0
			locks.Unlock(key)
		})
	}
	if panics < 3 {
		t.Errorf("it panicked %d times; want that it does before and after the request", panics)
	}
}
