package redisfence_test

import (
	"context"
	"errors"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
)

// These stand for what a service has.
var (
	ctx    = context.Background()
	locker *holdfast.Locker
	eval   redisfence.Eval // of its client: see the package's documentation
)

// Redis executes the commands if no later holder has written, even if this process was paused for a
// minute after it had looked at its lock.
func ExampleGuard_Do() {
	guard := redisfence.Guard{Eval: eval}

	err := locker.Do(ctx, "account/7", func(ctx context.Context, lock *holdfast.Lock) error {
		_, err := guard.Do(ctx, "{account:7}:fence", lock.Token(),
			redisfence.Command{"SET", "{account:7}", 90},
			redisfence.Command{"DEL", "{account:7}:reserved"})
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("somebody else has taken over: ", err)
	}
}

// The token is a field of the hash that is written, so neither is ever there without the other.
func ExampleGuard_field() {
	guard := redisfence.Guard{Eval: eval, Field: "fence"}

	err := locker.Do(ctx, "account/7", func(ctx context.Context, lock *holdfast.Lock) error {
		_, err := guard.Do(ctx, "account:7", lock.Token(),
			redisfence.Command{"HSET", "account:7", "balance", 90})
		return err
	})
	if err != nil {
		log.Print(err)
	}
}
