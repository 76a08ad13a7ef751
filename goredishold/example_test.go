package goredishold_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/goredishold"
)

func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"}) // which the service has
	defer client.Close()
	backend, err := goredishold.New(client)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close() // leaves the client open
	locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"),
		holdfast.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	err = locker.Do(context.Background(), "invoice/42",
		func(ctx context.Context, lock *holdfast.Lock) error {
			fmt.Println("working with token", lock.Token())
			return nil
		})
	if err != nil {
		log.Fatal(err)
	}
}
