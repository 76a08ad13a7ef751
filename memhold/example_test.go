package memhold_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

func Example() {
	backend := memhold.New()
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	err = locker.Do(context.Background(), "invoice/42",
		func(ctx context.Context, lock *holdfast.Lock) error {
			fmt.Println("paying", lock.Key())
			return ctx.Err()
		})
	fmt.Println("error:", err)
	// Output:
	// paying invoice/42
	// error: <nil>
}

// Each client stands for a process, and has faults of its own. Here one is cut off.
func ExampleBackend_Client() {
	ctx := context.Background()
	memory := memhold.New()
	defer memory.Close()
	process := memory.Client()
	defer process.Close()
	locker, _ := holdfast.New(memory)
	defer locker.Close()
	other, _ := holdfast.New(process)
	defer other.Close()

	process.Faults().Inject(memhold.Fault{Err: errors.New("connection refused")})
	_, err := other.TryAcquire(ctx, "invoice/42")
	fmt.Println("cut off:", errors.Is(err, holdfast.ErrUnavailable))

	process.Faults().Clear()
	lock, _ := locker.TryAcquire(ctx, "invoice/42")
	_, err = other.TryAcquire(ctx, "invoice/42")
	fmt.Println("held by another process:", errors.Is(err, holdfast.ErrHeld))
	lock.Release(ctx)
	// Output:
	// cut off: true
	// held by another process: true
}

// A lock is lost in the middle of the work, as if somebody had deleted its key.
func ExampleFaults_Lose() {
	backend := memhold.New()
	defer backend.Close()
	locker, _ := holdfast.New(backend)
	defer locker.Close()

	err := locker.Do(context.Background(), "invoice/42",
		func(ctx context.Context, lock *holdfast.Lock) error {
			backend.Faults().Lose(lock.Key())
			return lock.Extend(ctx) // now, where a program finds out by the next renewal
		})
	fmt.Println("lost:", errors.Is(err, holdfast.ErrLost))
	// Output: lost: true
}
