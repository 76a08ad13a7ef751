package holdfast

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// register is a context that counts what waits for its end. It is not of a type of package context,
// so that package context registers with it.
type register struct {
	context.Context
	mu         sync.Mutex
	registered int // in all
	left       int // of these, not taken back
}

// AfterFunc is what package context asks for.
func (r *register) AfterFunc(f func()) (stop func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registered++
	r.left++
	unhook := context.AfterFunc(r.Context, f)
	var once sync.Once
	return func() bool {
		once.Do(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.left--
		})
		return unhook()
	}
}

// Value hides the context inside.
func (r *register) Value(any) any { return nil }

func (r *register) counts() (registered, left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.registered, r.left
}

// trap is a backend whose calls panic after they have asked their context for Done.
type trap struct {
	*memhold.Backend
	mu   sync.Mutex
	call string // that does; empty: none
}

func (b *trap) set(call string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.call = call
}

func (b *trap) pass(ctx context.Context, call string) {
	b.mu.Lock()
	springs := b.call == call
	b.mu.Unlock()
	ctx.Done()
	if springs {
		b.set("")
		panic("a backend's fault")
	}
}

func (b *trap) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	b.pass(ctx, "acquire")
	return b.Backend.Acquire(ctx, c)
}

func (b *trap) Renew(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
	b.pass(ctx, "renew")
	return b.Backend.Renew(ctx, c)
}

func (b *trap) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	b.pass(ctx, "release")
	return b.Backend.Release(ctx, c)
}

func (b *trap) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	b.pass(ctx, "inspect")
	return b.Backend.Inspect(ctx, key)
}

// A request to the backend that panics leaves nothing that waits for the end of the Locker, or of
// the caller's context.
//
// Fails if the code is broken like this: a method of request without defer.
func TestPanicLeavesNothingRegistered(t *testing.T) {
	for name, c := range map[string]struct {
		call string
		do   func(ctx context.Context, l *Locker, lock *Lock)
	}{
		"Acquire": {"acquire", func(ctx context.Context, l *Locker, _ *Lock) {
			l.Acquire(ctx, "another")
		}},
		"TryAcquire": {"acquire", func(ctx context.Context, l *Locker, _ *Lock) {
			l.TryAcquire(ctx, "another")
		}},
		"a permit": {"acquire", func(ctx context.Context, l *Locker, _ *Lock) {
			l.TryAcquire(ctx, "another", WithPermits(1))
		}},
		"a set": {"acquire", func(ctx context.Context, l *Locker, _ *Lock) {
			l.AcquireAll(ctx, []string{"another", "and another"})
		}},
		"Extend": {"renew", func(ctx context.Context, _ *Locker, lock *Lock) {
			lock.Extend(ctx)
		}},
		"Downgrade": {"renew", func(ctx context.Context, _ *Locker, lock *Lock) {
			lock.Downgrade(ctx)
		}},
		"Release": {"release", func(ctx context.Context, _ *Locker, lock *Lock) {
			lock.Release(ctx)
		}},
		"Inspect": {"inspect", func(ctx context.Context, l *Locker, _ *Lock) {
			l.Inspect(ctx, "key")
		}},
		"a fresh run": {"renew", func(ctx context.Context, l *Locker, lock *Lock) {
			time.AfterFunc(time.Second, func() { lock.Release(context.Background()) })
			l.Acquire(ctx, "key")
		}},
		"a fresh span": {"renew", func(ctx context.Context, l *Locker, _ *Lock) {
			l.Acquire(context.Background(), "another", WithShared())
			time.Sleep(time.Second)
			l.Acquire(ctx, "another", WithShared())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := memhold.New()
				defer memory.Close()
				backend := &trap{Backend: memory}
				l, err := New(backend)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				life := &register{Context: l.life}
				l.life = life
				parent, cancel := context.WithCancel(context.Background())
				defer cancel()
				caller := &register{Context: parent}
				lock, err := l.Acquire(context.Background(), "key")
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Release(context.Background())
				backend.set(c.call)
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the panic of the backend did not reach the caller")
						}
					}()
					c.do(caller, l, lock)
				}()
				synctest.Wait()
				for what, r := range map[string]*register{"Locker": life, "caller": caller} {
					if registered, left := r.counts(); registered == 0 || left != 0 {
						t.Errorf("%d of %d wait for the end of the %s; want none of some", left,
							registered, what)
					}
				}
			})
		})
	}
}
