package pghold_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/pghold"
)

func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/app") // which the service has
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pghold.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	backend, err := pghold.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close() // leaves the pool open
	locker, err := holdfast.New(backend, holdfast.WithTTL(10*time.Second))
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

func ExampleOpen() {
	backend, err := pghold.Open(context.Background(),
		"postgres://locks:secret@db1,db2/app?sslmode=verify-full&create=true")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
}
