package etcdhold_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdhold"
)

func ExampleOpen() {
	ctx := context.Background()
	backend, err := etcdhold.Open(ctx, "etcd://localhost:2379")
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

func ExampleNew() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	backend, err := etcdhold.New(client, etcdhold.WithKeyspace("team/locks/"))
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close() // leaves the client open
}
