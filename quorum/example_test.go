package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// Two of five nodes are down, and the other three grant the lock.
func ExampleNew() {
	var nodes []driver.Backend // on servers: redlock.Open makes them, too
	for i := range 5 {
		node := memhold.New()
		if i < 2 {
			node.Faults().Inject(memhold.Fault{Err: errors.New("connection refused")})
		}
		nodes = append(nodes, node)
	}
	backend, err := quorum.New(nodes)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close() // and the nodes
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	err = locker.Do(context.Background(), "invoice/42",
		func(ctx context.Context, lock *holdfast.Lock) error {
			fmt.Println("paying", lock.Key())
			return ctx.Err()
		})
	fmt.Println("error:", err)
	// Output:
	// paying invoice/42
	// error: <nil>
}
