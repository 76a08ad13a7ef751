package zkhold_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/zkhold"
)

func ExampleOpen() {
	ctx := context.Background()
	backend, err := zkhold.Open(ctx, "zookeeper://h1:2181,h2:2181,h3:2181/holdfast")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	locker, err := holdfast.New(backend)
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

// What a killed process leaves behind lasts for ten seconds.
func ExampleWithSession() {
	backend, err := zkhold.Open(context.Background(), "zookeeper://localhost",
		zkhold.WithSession(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	locker, err := holdfast.New(backend, holdfast.WithTTL(7*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
}
