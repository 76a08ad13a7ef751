package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/memhold"
)

// The lock of the first holder was lost, and the second has written. What the first one writes late
// is refused.
func Example() {
	ctx := context.Background()
	backend := memhold.New()
	defer backend.Close()
	locker, _ := holdfast.New(backend)
	defer locker.Close()
	var guard fence.Register // in a program, the guard of its database

	write := func(token fence.Token, text string) error {
		return guard.Do(ctx, "invoice/42", token, func(context.Context) error {
			fmt.Println("written:", text)
			return nil
		})
	}
	first, err := locker.Acquire(ctx, "invoice/42")
	if err != nil {
		log.Fatal(err)
	}
	first.Release(ctx) // stands for a pause that was longer than the lease
	second, err := locker.Acquire(ctx, "invoice/42")
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release(ctx)

	fmt.Println(write(second.Token(), "by the second"))
	fmt.Println(errors.Is(write(first.Token(), "by the first"), fence.ErrStale))
	// Output:
	// written: by the second
	// <nil>
	// true
}

// A guard tells by which token the holder was overtaken.
func ExampleStaleError() {
	var guard fence.Register
	write := func(context.Context) error { return nil }
	guard.Do(context.Background(), "invoice/42", 8, write)

	err := guard.Do(context.Background(), "invoice/42", 7, write)
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		fmt.Println(stale.Resource, stale.Token, "after", stale.Newest)
	}
	// Output: invoice/42 7 after 8
}
