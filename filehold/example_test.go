//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/filehold"
)

// Two programs that open the same directory exclude each other; here, both are in one process.
func Example() {
	parent, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(parent)
	dir := filepath.Join(parent, "locks")

	// Each program opens the directory, and makes a Locker for it.
	lockers := make([]*holdfast.Locker, 2)
	for i := range lockers {
		backend, err := filehold.Open(dir)
		if err != nil {
			log.Fatal(err)
		}
		defer backend.Close()
		if lockers[i], err = holdfast.New(backend); err != nil {
			log.Fatal(err)
		}
		defer lockers[i].Close()
	}

	ctx := context.Background()
	lock, err := lockers[0].Acquire(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	_, err = lockers[1].TryAcquire(ctx, "nightly")
	fmt.Println("held by another:", errors.Is(err, holdfast.ErrHeld))

	if err := lock.Release(ctx); err != nil {
		log.Fatal(err)
	}
	if lock, err = lockers[1].TryAcquire(ctx, "nightly"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("acquired")
	if err := lock.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// held by another: true
	// acquired
}

// A child that must not run without the lock inherits the pipe that keeps it. So nobody else gets
// the lock while the child runs, even if this process is killed.
func ExampleBackend_Inherit() {
	backend, err := filehold.Open("/var/lib/myservice/locks")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	err = locker.Do(context.Background(), "migration",
		func(ctx context.Context, lock *holdfast.Lock) error {
			cmd := exec.CommandContext(ctx, "migrate", "--token", lock.Token().String())
			cmd.ExtraFiles = backend.Inherit()
			return cmd.Run()
		})
	if err != nil {
		log.Fatal(err)
	}
}
