//go:build unix

package zkhold_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/zookeepertest"
	"github.com/holdfast-go/holdfast/zkhold"
)

// TestKilledLeader kills the leader of an ensemble, to which the clients are connected, while locks
// are held and waited for. They stay held, nobody is told of a loss, and the waiter gets its lock
// from the next leader, with a larger token.
func TestKilledLeader(t *testing.T) {
	leader, followers, err := zookeepertest.StartEnsemble(t)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("zookeeper://%s,%s,%s", leader.Address, followers[0].Address,
		followers[1].Address)
	ctx, cancel := patience(t)
	defer cancel()
	locker := func() *holdfast.Locker {
		var later atomic.Bool
		toLeader := func(network, address string, timeout time.Duration) (net.Conn, error) {
			if !later.Swap(true) {
				address = leader.Address
			}
			return net.DialTimeout(network, address, timeout)
		}
		l, err := holdfast.New(open(t, url, zkhold.WithDialer(toLeader)),
			holdfast.WithTTL(10*time.Minute))
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
