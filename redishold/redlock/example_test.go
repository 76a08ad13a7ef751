package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/redishold/redlock"
)

// Five independent servers, of which two may fail. The log has a line when one does.
func ExampleOpen() {
	ctx := context.Background()
	backend, err := redlock.Open(ctx, "redlock://h1:6379,h2:6379,h3:6379,h4:6379,h5:6379",
		redlock.WithLog(slog.Default()))
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

// The settings of a program are checked before there are servers.
func ExampleValidate() {
	fmt.Println(redlock.Validate("redlock://h1:6379,h2:6379,h3:6379?restart-guard=2m"))
	err := redlock.Validate("redlock://h1:6379,h2:6379") // two tolerate no failure
	fmt.Println(errors.Is(err, holdfast.ErrInvalid))
	// Output:
	// <nil>
	// true
}
