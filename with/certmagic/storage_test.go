package withcertmagic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/memhold"
	withcertmagic "github.com/holdfast-go/holdfast/with/certmagic"
)

var errWhy = errors.New("the caller's reason")

// storageOf returns the storage of another process, and the losses that are reported to it.
func storageOf(t *testing.T, memory *memhold.Backend, dir string,
	options ...holdfast.AcquireOption) (*withcertmagic.Storage, chan error) {
	t.Helper()
	locker, err := holdfast.New(memory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locker.Close() })
	told := make(chan error, 10)
	s, err := withcertmagic.New(locker, &certmagic.FileStorage{Path: dir},
		withcertmagic.WithLockOptions(options...),
		withcertmagic.WithOnError(func(name string, err error) {
			if name != "issue" {
				t.Errorf("told of %q", name)
			}
			told <- err
		}))
	if err != nil {
		t.Fatal(err)
	}
	return s, told
}

// play runs a test in a bubble, where time is exact and costs nothing.
func play(t *testing.T, f func(t *testing.T, memory *memhold.Backend, a, b *withcertmagic.Storage,
	told chan error)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		memory := memhold.New()
		t.Cleanup(func() { memory.Close() })
		a, told := storageOf(t, memory, dir)
		b, _ := storageOf(t, memory, dir)
		f(t, memory, a, b, told)
	})
}

// authority issues certificates that nobody trusts.
type authority struct {
	issued atomic.Int64
	during func()
}

func (a *authority) IssuerKey() string { return "authority" }

func (a *authority) Issue(_ context.Context,
	request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a.issued.Add(1)
	a.during()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// If several processes need a certificate at the same time, certmagic itself obtains it once.
func TestOneObtains(t *testing.T) {
	const processes, name = 3, "example.com"
	memory, dir := memhold.New(), t.TempDir()
	defer memory.Close()
	issuer := &authority{during: func() {
		testserver.Eventually(t, "the others wait", func() error {
			entry, err := memory.Inspect(t.Context(), "issue_cert_"+name)
			return errors.Join(err, testserver.Not(len(entry.Waiters) == processes-1, "%+v", entry))
		})
	}}
	var wait sync.WaitGroup
	for range processes {
		storage, _ := storageOf(t, memory, dir)
		var config *certmagic.Config
		cache := certmagic.NewCache(certmagic.CacheOptions{
			GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) {
				return config, nil
			}})
		defer cache.Stop()
		config = certmagic.New(cache, certmagic.Config{Storage: storage,
			Issuers: []certmagic.Issuer{issuer}})
		wait.Go(func() {
			if err := config.ObtainCertSync(t.Context(), name); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := issuer.issued.Load(); n != 1 {
		t.Errorf("obtained %d times", n)
	}
}

func TestLocks(t *testing.T) {
	play(t, func(t *testing.T, memory *memhold.Backend, a, b *withcertmagic.Storage, _ chan error) {
		ctx := t.Context()
		if err := a.Lock(ctx, "issue"); err != nil {
			t.Fatal(err)
		}
		if ok, err := b.TryLock(ctx, "issue"); ok || err != nil {
			t.Errorf("TryLock of what another has = %v, %v", ok, err)
		}
		if ok, err := b.TryLock(ctx, "other"); !ok || err != nil {
			t.Errorf("TryLock of what nobody has = %v, %v", ok, err)
		}
		ended, cancel := context.WithTimeoutCause(ctx, time.Minute, errWhy)
		defer cancel()
		if err := b.Lock(ended, "issue"); !errors.Is(err, errWhy) {
			t.Errorf("Lock of what another has = %v, want why its context has ended", err)
		}
		if err := a.RenewLockLease(ctx, "issue", time.Hour); err != nil {
			t.Errorf("RenewLockLease = %v", err)
		}
		time.AfterFunc(time.Second, func() { a.Unlock(ctx, "issue") })
		began := time.Now()
		if err := b.Lock(ctx, "issue"); err != nil || time.Since(began) != time.Second {
			t.Errorf("Lock = %v after %v", err, time.Since(began))
		}
		if err := errors.Join(b.Unlock(ctx, "issue"), b.Unlock(ctx, "other")); err != nil {
			t.Error(err)
		}
		if b.Unlock(ctx, "issue") == nil || b.RenewLockLease(ctx, "issue", 0) == nil {
			t.Error("what is not locked is unlocked or renewed")
		}
		synctest.Wait() // until a knows that it has released the lock
		memory.Close()
		if ok, err := a.TryLock(ctx, "issue"); ok || !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("TryLock without a backend = %v, %v", ok, err)
		}
	})
}

// After a loss the next attempt waits for the lock anew.
func TestLoss(t *testing.T) {
	play(t, func(t *testing.T, memory *memhold.Backend, a, b *withcertmagic.Storage,
		told chan error) {
		ctx := t.Context()
		if err := a.Lock(ctx, "issue"); err != nil {
			t.Fatal(err)
		}
		memory.Faults().Give("issue", "a thief", time.Minute)
		began := time.Now()
		var lost *holdfast.LostError
		if err := <-told; !errors.As(err, &lost) {
			t.Errorf("told %v, want a LostError", err)
		}
		err := a.RenewLockLease(ctx, "issue", 0)
		if took := time.Since(began); err != nil || took != time.Minute {
			t.Errorf("RenewLockLease = %v after %v; want that it waits for the thief", err, took)
		}
		unlocksAgain(t, a, b)
		if len(told) != 0 {
			t.Errorf("told %v, too", <-told)
		}
	})
}

// A lost lock cannot be released, and the lock of another goroutine is left alone.
func TestUnlockAfterALoss(t *testing.T) {
	play(t, func(t *testing.T, memory *memhold.Backend, a, b *withcertmagic.Storage,
		told chan error) {
		ctx := t.Context()
		if err := a.Lock(ctx, "issue"); err != nil {
			t.Fatal(err)
		}
		memory.Faults().Lose("issue")
		<-told
		if err := a.Lock(ctx, "issue"); err != nil {
			t.Fatal(err)
		}
		if err := a.Unlock(ctx, "issue"); err != nil {
			t.Errorf("Unlock of what was lost = %v", err)
		}
		if ok, _ := b.TryLock(ctx, "issue"); ok {
			t.Error("Unlock has released the lock of another goroutine")
		}
		if err := a.Unlock(ctx, "issue"); err != nil {
			t.Error(err)
		}
	})
}

// unlocksAgain unlocks what a has to hold again, and what b can lock then.
func unlocksAgain(t *testing.T, a, b *withcertmagic.Storage) {
	t.Helper()
	if ok, _ := b.TryLock(t.Context(), "issue"); ok {
		t.Error("the lock is not held again")
	}
	if err := a.Unlock(t.Context(), "issue"); err != nil {
		t.Error(err)
	}
	if ok, err := b.TryLock(t.Context(), "issue"); !ok || err != nil {
		t.Errorf("TryLock after Unlock = %v, %v", ok, err)
	}
}

// While an attempt waits for its lost lock anew, another goroutine of the process may have the
// lock. Its Unlock releases it, and the attempt goes on.
func TestLossWhileAnotherGoroutineWaits(t *testing.T) {
	play(t, func(t *testing.T, memory *memhold.Backend, a, b *withcertmagic.Storage,
		told chan error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := a.Lock(ctx, "issue"); err != nil {
			t.Fatal(err)
		}
		memory.Faults().Give("issue", "a thief", time.Minute)
		<-told
		other := make(chan error, 1)
		go func() {
			other <- a.Lock(ctx, "issue")
			time.Sleep(time.Minute)
			other <- a.Unlock(ctx, "issue")
		}()
		synctest.Wait()
		if err := a.RenewLockLease(ctx, "issue", 0); err != nil {
			t.Errorf("RenewLockLease while another goroutine has the lock = %v", err)
		}
		if err := errors.Join(<-other, <-other); err != nil {
			t.Error(err)
		}
		unlocksAgain(t, a, b)
	})
}

// An attempt that waits for its lost lock in vain can be unlocked as before.
func TestLossThatLasts(t *testing.T) {
	play(t, func(t *testing.T, memory *memhold.Backend, a, _ *withcertmagic.Storage,
		told chan error) {
		if err := a.Lock(t.Context(), "issue"); err != nil {
			t.Fatal(err)
		}
		memory.Faults().Give("issue", "a thief", time.Hour)
		<-told
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errWhy)
		defer cancel()
		if err := a.RenewLockLease(ctx, "issue", 0); !errors.Is(err, errWhy) {
			t.Errorf("RenewLockLease = %v, want why its context has ended", err)
		}
		if err := a.Unlock(t.Context(), "issue"); err != nil {
			t.Error(err)
		}
		if a.Unlock(t.Context(), "issue") == nil {
			t.Error("what is not locked is unlocked")
		}
	})
}

// unlocksOnce unlocks what a has locked, which is one lock, and what b can lock then.
func unlocksOnce(t *testing.T, a, b *withcertmagic.Storage) {
	t.Helper()
	unlocksAgain(t, a, b)
	if a.Unlock(t.Context(), "issue") == nil {
		t.Error("what is not locked is unlocked")
	}
}

func holderOf(t *testing.T, memory *memhold.Backend) driver.Party {
	t.Helper()
	entry, err := memory.Inspect(t.Context(), "issue")
	if err != nil {
		t.Fatal(err)
	}
	return entry.Holder
}

// While another goroutine of the process has the lock that was lost, RenewLockLease does not wait,
// whether it has done so before or not. The next Unlock is for the lost one.
func TestLossWhileAnotherGoroutineHasTheLock(t *testing.T) {
	for _, waits := range []bool{false, true} {
		play(t, func(t *testing.T, memory *memhold.Backend, a, b *withcertmagic.Storage,
			told chan error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := a.Lock(ctx, "issue"); err != nil {
				t.Fatal(err)
			}
			memory.Faults().Give("issue", "a thief", time.Minute)
			<-told
			other := make(chan error, 1)
			go func() { other <- a.Lock(ctx, "issue") }()
			synctest.Wait()
			if waits {
				ended, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errWhy)
				defer cancel()
				if err := a.RenewLockLease(ended, "issue", 0); !errors.Is(err, errWhy) {
					t.Errorf("RenewLockLease = %v, want why its context has ended", err)
				}
			}
			if err := <-other; err != nil {
				t.Fatal(err)
			}
			began, before := time.Now(), holderOf(t, memory)
			err := a.RenewLockLease(ctx, "issue", 0)
			if took := time.Since(began); err != nil || took != 0 || holderOf(t, memory) != before {
				t.Errorf("waited %v: RenewLockLease = %v after %v, and %v has the lock; want nil "+
					"at once, and %v", waits, err, took, holderOf(t, memory), before)
			}
			if err := a.Unlock(ctx, "issue"); err != nil {
				t.Errorf("waited %v: Unlock of what was lost = %v", waits, err)
			}
			unlocksOnce(t, a, b)
		})
	}
}

// odd is a context that panics in the last of some calls.
type odd struct {
	context.Context
	left *int
}

func (o odd) count() {
	if *o.left--; *o.left == 0 {
		panic("a fault of the caller's")
	}
}

func (o odd) Deadline() (time.Time, bool) { o.count(); return o.Context.Deadline() }
func (o odd) Done() <-chan struct{}       { o.count(); return o.Context.Done() }
func (o odd) Err() error                  { o.count(); return o.Context.Err() }
func (o odd) Value(key any) any           { o.count(); return o.Context.Value(key) }

// If the context of RenewLockLease panics, whenever that is, the attempt can be unlocked as before.
func TestContextThatPanics(t *testing.T) {
	for name, options := range map[string][]holdfast.AcquireOption{
		"lost": nil, "held for too long": {holdfast.WithMaxHold(time.Minute)},
	} {
		for at, panicked := 1, true; panicked; at++ {
			synctest.Test(t, func(t *testing.T) {
				memory := memhold.New()
				t.Cleanup(func() { memory.Close() })
				a, told := storageOf(t, memory, "unused", options...)
				b, _ := storageOf(t, memory, "unused")
				if err := a.Lock(t.Context(), "issue"); err != nil {
					t.Fatal(err)
				}
				if options == nil {
					memory.Faults().Lose("issue")
				}
				<-told
				left := at
				panicked = func() (panicked bool) {
					defer func() { panicked = recover() != nil }()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if err := a.RenewLockLease(odd{ctx, &left}, "issue", 0); err != nil {
						t.Errorf("%s: RenewLockLease = %v", name, err)
					}
					return
				}()
				if !panicked {
					unlocksOnce(t, a, b)
					return
				}
				synctest.Wait() // what was acquired or released goes on in the background
				if err := a.Unlock(t.Context(), "issue"); err != nil {
					t.Errorf("%s, call %d: Unlock = %v", name, at, err)
				}
				if a.Unlock(t.Context(), "issue") == nil {
					t.Errorf("%s, call %d: what is not locked is unlocked", name, at)
				}
				if ok, err := b.TryLock(t.Context(), "issue"); !ok || err != nil {
					t.Errorf("%s, call %d: TryLock of another process = %v, %v", name, at, ok, err)
				}
			})
			if !panicked && at < 6 {
				t.Errorf("%s: only %d calls of the context", name, at-1)
			}
		}
	}
}

// A lock that has ended at its maximum hold is free for others before it is waited for anew.
func TestMaximumHold(t *testing.T) {
	for _, othersWait := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			memory := memhold.New()
			t.Cleanup(func() { memory.Close() })
			a, told := storageOf(t, memory, "unused", holdfast.WithMaxHold(time.Minute))
			b, _ := storageOf(t, memory, "unused")
			if err := a.Lock(t.Context(), "issue"); err != nil {
				t.Fatal(err)
			}
			if err := <-told; !errors.Is(err, holdfast.ErrMaxHold) {
				t.Errorf("told %v, want ErrMaxHold", err)
			}
			var want time.Duration
			if othersWait {
				want = time.Second
				go func() {
					if err := b.Lock(t.Context(), "issue"); err != nil {
						t.Error(err)
					}
					time.Sleep(want)
					b.Unlock(t.Context(), "issue")
				}()
				synctest.Wait()
			}
			began := time.Now()
			err := a.RenewLockLease(t.Context(), "issue", 0)
			if took := time.Since(began); err != nil || took != want {
				t.Errorf("RenewLockLease = %v after %v, want it after %v", err, took, want)
			}
			unlocksOnce(t, a, b)
		})
	}
}

// secretive is a storage that has a password, which it does not show.
type secretive struct {
	certmagic.FileStorage
	Password string
}

func (s *secretive) String() string { return "/certificates" }

// open is a storage that shows what it has.
type open struct {
	certmagic.Storage
	Password string
}

// What certmagic logs of a Storage has no secret of the storage that it wraps.
func TestString(t *testing.T) {
	play(t, func(t *testing.T, memory *memhold.Backend, _, _ *withcertmagic.Storage, _ chan error) {
		locker, err := holdfast.New(memory)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close()
		for want, storage := range map[string]certmagic.Storage{
			"/certificates":            &secretive{Password: "secret"},
			"*withcertmagic_test.open": &open{Password: "secret"},
		} {
			s, err := withcertmagic.New(locker, storage)
			if got := fmt.Sprint(s); err != nil || got != want {
				t.Errorf("shown as %q, %v; want %q", got, err, want)
			}
		}
	})
}

func TestInvalid(t *testing.T) {
	play(t, func(t *testing.T, memory *memhold.Backend, a, _ *withcertmagic.Storage, _ chan error) {
		locker, err := holdfast.New(memory)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close()
		for name, err := range map[string]error{
			"no locker":  second(withcertmagic.New(nil, a)),
			"no storage": second(withcertmagic.New(locker, nil)),
			"nil option": second(withcertmagic.New(locker, a, nil)),
			"nil lock option": second(withcertmagic.New(locker, a,
				withcertmagic.WithLockOptions(nil))),
		} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	})
}

func second(_ *withcertmagic.Storage, err error) error { return err }

// The end of a context is told as such, also if its cause is an error of another lock.
func TestContextThatEndsWithAnotherLock(t *testing.T) {
	play(t, func(t *testing.T, memory *memhold.Backend, a, b *withcertmagic.Storage, _ chan error) {
		if err := a.Lock(t.Context(), "issue"); err != nil {
			t.Fatal(err)
		}
		memory.Faults().Freeze()
		for _, cause := range []error{&holdfast.HeldError{Key: "another"},
			&holdfast.LostError{Key: "another", Reason: errWhy}} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Millisecond, func() { cancel(cause) })
			if ok, err := b.TryLock(ctx, "issue"); ok || !errors.Is(err, context.Canceled) {
				t.Errorf("TryLock = %v, %v; want the error of its context", ok, err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() {
			cancel(&holdfast.LostError{Key: "another", Reason: errWhy})
		})
		if err := a.Unlock(ctx, "issue"); !errors.Is(err, context.Canceled) {
			t.Errorf("Unlock without an answer = %v; want the error of its context", err)
		}
		memory.Faults().Thaw()
	})
}

// The options of the locks are those of every lock.
func TestLockOptions(t *testing.T) {
	for name, lock := range map[string]func(*withcertmagic.Storage, context.Context) error{
		"Lock": func(s *withcertmagic.Storage, ctx context.Context) error {
			return s.Lock(ctx, "issue")
		},
		"TryLock": func(s *withcertmagic.Storage, ctx context.Context) error {
			_, err := s.TryLock(ctx, "issue")
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			memory := memhold.New()
			t.Cleanup(func() { memory.Close() })
			s, _ := storageOf(t, memory, "unused", holdfast.WithTTL(17*time.Second))
			if err := lock(s, t.Context()); err != nil {
				t.Fatal(err)
			}
			if ttl := holderOf(t, memory).ExpiresIn; ttl != 17*time.Second {
				t.Errorf("%s: the lease has %v, want 17s", name, ttl)
			}
		})
	}
}
