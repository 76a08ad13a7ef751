//go:build unix

package itest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdhold"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver/zookeepertest"
	"github.com/holdfast-go/holdfast/pghold"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/zkhold"
)

// ingredient is a node of a quorum: a server of some system, which remembers what it has answered.
type ingredient struct {
	name string
	kill func()
	run  func() error
	open func(ctx context.Context) (driver.Backend, error)
}

// ingredients starts an etcd, a PostgreSQL, a ZooKeeper and two Redis.
func ingredients(t *testing.T) []ingredient {
	etcd, err := etcdtest.Start()
	ended(t, err, etcd.Process)
	postgres, err := postgrestest.Start()
	ended(t, err, postgres.Process)
	zookeeper, err := zookeepertest.Start(t)
	ended(t, err, zookeeper.Process)
	all := []ingredient{
		{"etcd", etcd.Kill, etcd.Run, func(ctx context.Context) (driver.Backend, error) {
			return etcdhold.Open(ctx, "etcd+"+etcd.Endpoint())
		}},
		{"PostgreSQL", postgres.Kill, postgres.Run,
			func(ctx context.Context) (driver.Backend, error) {
				return pghold.Open(ctx, "postgres://holdfast@/postgres?host="+postgres.Dir+
					"&sslmode=disable", pghold.WithMigration())
			}},
		{"ZooKeeper", zookeeper.Kill, zookeeper.Run,
			func(ctx context.Context) (driver.Backend, error) {
				return zkhold.Open(ctx, "zookeeper://"+zookeeper.Address)
			}},
	}
	for i := range 2 {
		redis := redistest.Start(t, redistest.WithAOF("always"))
		run := func() error { redis.Run(t); return nil }
		all = append(all, ingredient{fmt.Sprint("Redis ", i+1), redis.Kill, run,
			func(ctx context.Context) (driver.Backend, error) {
				return redishold.Open(ctx, redis.URL())
			}})
	}
	return all
}

// ended removes a server at the end of the test.
func ended(t *testing.T, err error, p *testserver.Process) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Remove(); err != nil {
			t.Error(err)
		}
	})
}

// mixed is a client of the quorum.
type mixed struct {
	*holdfast.Locker
	nodes []driver.Backend
}

func mix(ctx context.Context, t *testing.T, all []ingredient) mixed {
	t.Helper()
	m := mixed{}
	var names []string
	for _, one := range all {
		b, err := one.open(ctx)
		if err != nil {
			t.Fatalf("%s: %v", one.name, err)
		}
		m.nodes, names = append(m.nodes, b), append(names, one.name)
	}
	// None of these nodes forgets, so there is no wait after a restart. The time for a node is long
	// enough for a busy machine.
	q, err := quorum.New(m.nodes, quorum.WithNames(names...), quorum.WithGuard(0),
		quorum.WithNodeTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	if m.Locker, err = holdfast.New(q, holdfast.WithTTL(30*time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestMixedQuorum has a quorum of etcd, PostgreSQL, ZooKeeper and Redis. One server after the other
// is killed while two clients work. Never are two inside at once, tokens rise, what is held stays
// held, and waiters get their turns.
func TestMixedQuorum(t *testing.T) {
	t.Parallel()
	all := ingredients(t)
	ctx, cancel := context.WithTimeout(t.Context(), testserver.Patience)
	defer cancel()
	a, b := mix(ctx, t, all), mix(ctx, t, all)
	held, err := a.Acquire(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}
	w := new(work)
	w.by(ctx, t, a, b)
	for i, one := range all {
		one.kill()
		w.by(ctx, t, a, b)
		if err := held.Extend(ctx); err != nil {
			t.Errorf("without %s: Extend: %v", one.name, err)
		}
		if _, err := b.TryAcquire(ctx, "held"); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("without %s: TryAcquire of what is held: %v", one.name, err)
		}
		if err := one.run(); err != nil {
			t.Fatal(err)
		}
		testserver.Eventually(t, one.name+" has the lock again", func() error {
			if err := held.Extend(ctx); err != nil {
				return err
			}
			e, err := a.nodes[i].(driver.Inspector).Inspect(ctx, "held")
			return errors.Join(err, testserver.Not(e.Holder.Owner != "", "%+v", e))
		})
	}

	got := make(chan error, 1)
	var next *holdfast.Lock
	go func() {
		var err error
		next, err = b.Acquire(ctx, "held")
		got <- err
	}()
	testserver.Eventually(t, "it waits on a majority", func() error {
		n := 0
		for _, node := range a.nodes {
			e, err := node.(driver.Inspector).Inspect(ctx, "held")
			if err == nil && len(e.Waiters) == 1 {
				n++
			}
		}
		return testserver.Not(n > len(all)/2, "on %d", n)
	})
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if next.Token() <= held.Token() {
		t.Errorf("token %d follows %d", next.Token(), held.Token())
	}
	if err := next.Release(ctx); err != nil {
		t.Error(err)
	}
}

// work is what takes a lock.
type work struct {
	inside atomic.Int64
	last   atomic.Uint64 // token
}

// by makes each client do it ten times.
func (w *work) by(ctx context.Context, t *testing.T, clients ...mixed) {
	t.Helper()
	var running sync.WaitGroup
	for _, c := range clients {
		running.Go(func() {
			for range 10 {
				if err := c.Do(ctx, "work", w.once); err != nil {
					t.Errorf("work: %v", err)
				}
			}
		})
	}
	running.Wait()
}

func (w *work) once(_ context.Context, lock *holdfast.Lock) error {
	defer w.inside.Add(-1)
	if n := w.inside.Add(1); n != 1 {
		return fmt.Errorf("%d are in", n)
	}
	if last := w.last.Swap(uint64(lock.Token())); last >= uint64(lock.Token()) {
		return fmt.Errorf("token %d follows %d", lock.Token(), last)
	}
	return nil
}
