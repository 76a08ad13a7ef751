package redislock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/with/redislock"
)

func Example() {
	locker := redislock.NewOver(memhold.New()) // in a program: redislock.New(client)
	defer locker.Close()

	ctx := context.Background()
	lock, err := locker.Obtain(ctx, "my-key", time.Second, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)
	_, err = locker.Obtain(ctx, "my-key", time.Second, nil)
	fmt.Println("taken:", err == redislock.ErrNotObtained)

	if err := lock.Refresh(ctx, time.Minute, nil); err != nil {
		log.Fatal(err)
	}
	// What is new: a token for the store that the lock protects, and a context that ends with it.
	fmt.Println("there is a token:", lock.Held().Token("my-key") > 0)
	ctx = lock.Held().Context(ctx)
	// Output:
	// taken: true
	// there is a token: true
}
