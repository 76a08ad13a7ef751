//go:build unix

package withredisson_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	withredisson "github.com/holdfast-go/holdfast/with/redisson"
)

// A service in Go takes the lock that a service in Java knows as
// redisson.getLock("invoice/42").
func Example() {
	// In a program: Addr: "localhost:6379".
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server})
	defer client.Close()
	backend, err := withredisson.New(client)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx := context.Background()
	err = locker.Do(ctx, "invoice/42", func(ctx context.Context, lock *holdfast.Lock) error {
		count, err := client.HLen(ctx, "invoice/42").Result()
		fmt.Println("holders in the hash of the RLock:", count)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: holders in the hash of the RLock: 1
}
