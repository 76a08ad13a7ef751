package etcdfence_test

import (
	"context"
	"errors"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/etcdfence"
)

// These stand for what a service has.
var (
	ctx    = context.Background()
	client *clientv3.Client
	locker *holdfast.Locker
)

// etcd refuses the write if a later holder has written, even if this process was paused for a
// minute after it had looked at its lock. The lock may be anywhere.
func ExampleGuard() {
	guard := etcdfence.Guard{Client: client}

	err := locker.Do(ctx, "account/7", func(ctx context.Context, lock *holdfast.Lock) error {
		_, err := guard.Do(ctx, "account/7", lock.Token(),
			clientv3.OpPut("account/7/balance", "90"),
			clientv3.OpDelete("account/7/reserved"))
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("somebody else has taken over: ", err)
	}
}

// The lock is a key in the same etcd, of which another process has told the name and the revision.
func ExampleHeld() {
	key, revision := "jobs/lock/694d81417acd4754", int64(1734)

	answer, err := client.Txn(ctx).
		If(etcdfence.Held(key, revision)).
		Then(clientv3.OpPut("jobs/next", "8")).
		Commit()
	switch {
	case err != nil:
		log.Print("perhaps it is not written: ", err)
	case !answer.Succeeded:
		log.Print("the lock is lost, and nothing is written")
	}
}
