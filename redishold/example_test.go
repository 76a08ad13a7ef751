package redishold_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/redishold"
)

func ExampleOpen() {
	ctx := context.Background()
	backend, err := redishold.Open(ctx, "redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"),
		holdfast.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	err = locker.Do(ctx, "invoice/42", func(ctx context.Context, lock *holdfast.Lock) error {
		fmt.Println("working with token", lock.Token())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleOpen_sentinel() {
	backend, err := redishold.Open(context.Background(),
		"rediss+sentinel://locks:secret@s1,s2,s3/primary?tls-ca=/etc/ssl/redis.pem&wait=1")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
}

func ExampleNew() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	backend, err := redishold.New(client)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close() // leaves the client open
}
