//go:build unix

package etcdfence_test

import (
	"context"
	"reflect"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/fence/etcdfence"
)

// lock takes the lock, and returns its revision.
func lock(t *testing.T, client *clientv3.Client) (s *concurrency.Session, m *concurrency.Mutex,
	revision int64) {
	t.Helper()
	s, err := concurrency.NewSession(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m = concurrency.NewMutex(s, "lock")
	return s, m, again(t, client, m)
}

func again(t *testing.T, client *clientv3.Client, m *concurrency.Mutex) (revision int64) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	if err := m.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get(ctx, m.Key())
	if err != nil || len(answer.Kvs) == 0 {
		t.Fatalf("Get of the lock's key = %v, %v", answer, err)
	}
	return answer.Kvs[0].CreateRevision
}

// writes writes under the condition that the lock is held.
func writes(t *testing.T, client *clientv3.Client, held clientv3.Cmp, value string) bool {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	answer, err := client.Txn(ctx).If(held).Then(clientv3.OpPut("v", value)).Commit()
	if err != nil {
		t.Fatal(err)
	}
	return answer.Succeeded
}

// A holder that was paused until its lease had ended is refused; the next holder is not.
func TestHeldRefusesAHolderWhoseLeaseEnded(t *testing.T) {
	client, next := connect(t), connect(t)
	empty(t, client)
	session, mutex, revision := lock(t, client)
	held := etcdfence.Held(mutex.Key(), revision)
	if !reflect.DeepEqual(held, mutex.IsOwner()) {
		t.Errorf("Held is %v; want what the Mutex says: %v", held, mutex.IsOwner())
	}
	if !writes(t, client, held, "a") {
		t.Error("the holder is refused")
	}
	ctx, cancel := patience(t)
	defer cancel()
	if _, err := next.Revoke(ctx, session.Lease()); err != nil { // as etcd does at its end
		t.Fatal(err)
	}
	_, mutex, revision = lock(t, next)
	if !writes(t, next, etcdfence.Held(mutex.Key(), revision), "b") {
		t.Error("the next holder is refused")
	}
	if writes(t, client, held, "c") {
		t.Error("who held the lock before writes")
	}
	if v, _ := get(t, client, "v"); v != "b" {
		t.Errorf("%q is there; want what the next holder wrote", v)
	}
}

// A lock that its holder took again is another lock, with the same key.
func TestHeldTellsHoldsApart(t *testing.T) {
	client := connect(t)
	empty(t, client)
	_, mutex, first := lock(t, client)
	key := mutex.Key()
	if err := mutex.Unlock(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, revision := range []int64{first, 0, -1} {
		if writes(t, client, etcdfence.Held(key, revision), "a") {
			t.Errorf("revision %d holds while nobody does", revision)
		}
	}
	second := again(t, client, mutex)
	if mutex.Key() != key || writes(t, client, etcdfence.Held(key, first), "a") {
		t.Errorf("the hold before passes for the one with the key %s", mutex.Key())
	}
	if second <= first || !writes(t, client, etcdfence.Held(key, second), "a") {
		t.Errorf("revision %d after %d does not hold", second, first)
	}
}
