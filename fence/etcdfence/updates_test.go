//go:build unix

package etcdfence_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/fence"
)

// updater adds one to two counters under etcd's own lock: one that it writes as it is, and one by a
// guard with the lock's revision as the token.
type updater struct {
	client         *clientv3.Client
	session        *concurrency.Session
	mutex          *concurrency.Mutex
	revision       int64
	plain, guarded int // as it has read them
}

const plainKey, guardedKey = "plain", "guarded"

// enter takes the lock and reads.
func enter(t *testing.T, client *clientv3.Client) *updater {
	t.Helper()
	u := &updater{client: client}
	u.session, u.mutex, u.revision = lock(t, client)
	number := func(key string) int {
		text, _ := get(t, client, key)
		n, _ := strconv.Atoi(text) // none is 0
		return n
	}
	u.plain, u.guarded = number(plainKey), number(guardedKey)
	return u
}

// write writes what was read and one more. It reports whether the guard has let it.
func (u *updater) write(t *testing.T) (accepted bool) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	if _, err := u.client.Put(ctx, plainKey, strconv.Itoa(u.plain+1)); err != nil {
		t.Fatal(err)
	}
	_, err := patient(u.client).Do(ctx, "counter", fence.Token(u.revision),
		clientv3.OpPut(guardedKey, strconv.Itoa(u.guarded+1)))
	if err != nil && !errors.Is(err, fence.ErrStale) {
		t.Fatal(err)
	}
	return err == nil
}

// leave lets the lock go.
func (u *updater) leave(t *testing.T) {
	t.Helper()
	if err := u.session.Close(); err != nil {
		t.Fatal(err)
	}
}

// Jepsen has found that some updates under etcd's locks are lost: a paused holder writes after its
// lease has ended and the next one has written. No lock can tell it in time; a guard refuses the
// write. Every fourth holder is paused here.
func TestUpdatesUnderEtcdsLocks(t *testing.T) {
	client, next := connect(t), connect(t)
	empty(t, client)
	const holders = 40
	written, accepted, refused := 0, 0, 0
	count := func(let bool) {
		written++
		if let {
			accepted++
		} else {
			refused++
		}
	}
	for i := range holders {
		u := enter(t, client)
		if i%4 == 3 {
			ctx, cancel := patience(t)
			_, err := next.Revoke(ctx, u.session.Lease()) // as etcd does at its end
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			other := enter(t, next)
			count(other.write(t))
			other.leave(t)
			count(u.write(t))
			continue
		}
		count(u.write(t))
		u.leave(t)
	}
	plain, _ := get(t, client, plainKey)
	guarded, _ := get(t, client, guardedKey)
	t.Logf("%d updates: without a guard %s are there; with one %d were accepted, %d refused, and %s are there",
		written, plain, accepted, refused, guarded)
	const late = holders / 4
	if want := fmt.Sprint(written - late); plain != want {
		t.Errorf("without a guard %s of %d updates are there; want %s: each that is late undoes one",
			plain, written, want)
	}
	if refused != late || guarded != fmt.Sprint(accepted) {
		t.Errorf("the guard has refused %d of %d late ones, and %s of %d that it accepted are there",
			refused, late, guarded, accepted)
	}
}
