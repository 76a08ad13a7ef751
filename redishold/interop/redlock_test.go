package interop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	goredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold/redlock"
)

// Over the same five servers a mutex of redsync and a lock of Holdfast exclude each other, also
// with a minority of the servers gone, and the release of each lets the other one in.
func TestRedsyncOverFiveServers(t *testing.T) {
	t.Parallel()
	var servers []*redistest.Server
	var hosts []string
	var pools []redsyncredis.Pool
	for range 5 {
		s := redistest.Start(t)
		servers, hosts = append(servers, s), append(hosts, s.Addr)
		pools = append(pools, goredis.NewPool(newClient(t, s)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	backend, err := redlock.Open(ctx, "redlock://"+strings.Join(hosts, ",")+
		"?restart-guard=0s&node-timeout=30s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Close() })
	ours, err := holdfast.New(backend, holdfast.WithPrefix("lock:"), holdfast.WithTTL(long))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	theirs := redsync.New(pools...)

	exclude := func(t *testing.T, name string) {
		mutex := func() *redsync.Mutex {
			return theirs.NewMutex("lock:"+name, redsync.WithExpiry(long),
				redsync.WithTries(1), redsync.WithTimeoutFactor(0.1))
		}
		// refused makes sure that their mutex is not to be had.
		refused := func() {
			t.Helper()
			if err := mutex().LockContext(ctx); err == nil {
				t.Fatal("they hold it, too")
			}
		}
		lock, err := ours.TryAcquire(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		refused()
		if err := lock.Extend(ctx); err != nil {
			t.Fatalf("their attempt has harmed our lock: %v", err)
		}
		if err := lock.Release(ctx); err != nil {
			t.Fatal(err)
		}
		var m *redsync.Mutex
		testserver.Eventually(t, "our release lets them in", func() error {
			m = mutex()
			return m.LockContext(ctx)
		})

		var held *holdfast.HeldError
		if _, err := ours.TryAcquire(ctx, name); !errors.As(err, &held) ||
			held.Holder.Value != m.Value() {
			t.Fatalf("TryAcquire: %v; want held by %q", err, m.Value())
		}
		if ok, err := m.ExtendContext(ctx); !ok {
			t.Fatalf("our attempt has harmed their lock: %v", err)
		}
		waited := make(chan error, 1)
		go func() {
			lock, err := ours.Acquire(ctx, name)
			if err == nil {
				err = lock.Release(ctx)
			}
			waited <- err
		}()
		testserver.Eventually(t, "we wait", func() error {
			return testserver.Not(ours.Stats().Waiting == 1, "not yet")
		})
		select {
		case err := <-waited:
			t.Fatalf("we did not wait: %v", err)
		default:
		}
		if ok, err := m.UnlockContext(ctx); !ok {
			t.Fatalf("they could not release what they hold: %v", err)
		}
		if err := <-waited; err != nil {
			t.Fatalf("their release does not let our waiter in: %v", err)
		}
	}
	t.Run("all up", func(t *testing.T) { exclude(t, "a") })
	servers[1].Kill()
	servers[4].Kill()
	t.Run("two killed", func(t *testing.T) { exclude(t, "b") })
	servers[1].Run(t)
	servers[4].Run(t)
	t.Run("two have forgotten", func(t *testing.T) { exclude(t, "c") })
	for i, s := range servers {
		testserver.Eventually(t, fmt.Sprintf("only fences are left on server %d", i), func() error {
			keys, err := s.Try("KEYS", "lock:*")
			return errors.Join(err, testserver.Not(err == nil && len(keys.([]any)) == 0,
				"%v", keys))
		})
	}
}
