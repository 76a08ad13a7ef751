//go:build unix

package etcdhold_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
)

// leaderOf returns the member that leads.
func leaderOf(t *testing.T, client *clientv3.Client, members []*etcdtest.Member) *etcdtest.Member {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	for _, m := range members {
		status, err := client.Status(ctx, m.Address)
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			return m
		}
	}
	t.Fatal("nobody leads")
	return nil
}

// TestKilledLeader kills the leader of a cluster while locks are held and waited for. They stay
// held, nobody is told of a loss, and the waiter gets its lock from the next leader, with a larger
// token.
func TestKilledLeader(t *testing.T) {
	members, err := etcdtest.StartCluster(t)
	if err != nil {
		t.Fatal(err)
	}
	everybody := func(c *clientv3.Config) {
		c.Endpoints = nil
		for _, m := range members {
			c.Endpoints = append(c.Endpoints, m.Address)
		}
	}
	ctx, cancel := patience(t)
	defer cancel()
	locker := func() *holdfast.Locker {
		l, err := holdfast.New(open(t, connect(t, everybody)), holdfast.WithTTL(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	holder, waiter := locker(), locker()
	locks := make([]*holdfast.Lock, 10)
	for i := range locks {
		if locks[i], err = holder.Acquire(ctx, fmt.Sprint("k", i)); err != nil {
			t.Fatal(err)
		}
	}
	got := acquireBehind(ctx, t, waiter, holder, "k0")

	leader := leaderOf(t, connect(t, everybody), members)
	leader.Kill()
	for _, l := range locks {
		testserver.Eventually(t, "the next leader renews "+l.Key(), func() error {
			err := l.Extend(ctx)
			if errors.Is(err, holdfast.ErrLost) {
				t.Fatal(err)
			}
			return err
		})
	}
	select {
	case next := <-got:
		t.Fatalf("%v while it is held", next)
	default:
	}
	for _, l := range locks {
		if err := l.Err(); err != nil {
			t.Errorf("%s: %v; nothing was lost", l.Key(), err)
		}
		if err := l.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	next := <-got
	if next.err != nil || next.Token() <= locks[0].Token() {
		t.Fatalf("the waiter got %v; want a token above %v", next, locks[0].Token())
	}
	if _, err := holder.TryAcquire(ctx, "k0"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("TryAcquire beside the waiter: %v; want ErrHeld", err)
	}

	// The killed member learns all this when it is back.
	if err := leader.Run(); err != nil {
		t.Fatal(err)
	}
	b := open(t, connect(t, func(c *clientv3.Config) { c.Endpoints = []string{leader.Address} }))
	entry, err := b.Inspect(ctx, "k0")
	if err != nil || entry.Holder.Token != next.Token() {
		t.Errorf("the former leader shows %+v, %v; want token %v", entry, err, next.Token())
	}
	if err := next.Release(ctx); err != nil {
		t.Error(err)
	}
}

// answered is what Acquire has returned.
type answered struct {
	*holdfast.Lock
	err error
}

// acquireBehind acquires a key that somebody holds, and returns when its request is in the queue.
func acquireBehind(ctx context.Context, t *testing.T, l, other *holdfast.Locker,
	key string) <-chan answered {
	t.Helper()
	got := make(chan answered, 1)
	go func() {
		lock, err := l.Acquire(ctx, key)
		got <- answered{lock, err}
	}()
	testserver.Eventually(t, "it is in the queue", func() error {
		info, err := other.Inspect(ctx, key)
		return errors.Join(err, testserver.Not(len(info.Waiters) == 1, "%+v", info))
	})
	return got
}
