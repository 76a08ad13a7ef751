package driver_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// A backend answers single requests. Waiting, renewals and deadlines are the kernel's.
func ExampleBackend() {
	ctx := context.Background()
	backend := memhold.New()
	defer backend.Close()

	first := driver.Claim{Key: "invoice/42", Owner: driver.NewOwner(""), TTL: time.Minute}
	second := driver.Claim{Key: "invoice/42", Owner: driver.NewOwner(""), TTL: time.Minute}
	held, err := backend.Acquire(ctx, first)
	if err != nil {
		log.Fatal(err)
	}
	busy, err := backend.Acquire(ctx, second)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(held.State, busy.State, busy.Holder == first.Owner)
	backend.Release(ctx, first)
	// Output: held busy true
}

// The value of a lock on a server says whose it is.
func ExampleParseOwner() {
	value := driver.NewOwner(driver.OwnerSuffix("nightly")) // for one, by redis-cli get invoice/42
	owner := driver.ParseOwner(value)
	fmt.Println(owner.Label, owner.PID > 0)

	fmt.Println(driver.ParseOwner("of another library"))
	// Output:
	// nightly true
	// "of another library"
}

// A server that lost its data grants nothing until all leases that it forgot have ended.
func ExampleQuarantineError() {
	backend := memhold.New()
	defer backend.Close()
	backend.Guard(time.Minute)
	backend.Faults().Forget() // as a server without persistence that was restarted
	locker, _ := holdfast.New(backend)
	defer locker.Close()

	_, err := locker.TryAcquire(context.Background(), "invoice/42")
	var quarantine *driver.QuarantineError
	if errors.As(err, &quarantine) {
		fmt.Println("try again in", quarantine.Remaining.Round(time.Minute))
	}
	// Output: try again in 1m0s
}
