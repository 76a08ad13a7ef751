package redismodel_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/redishold/protocol"
	"github.com/holdfast-go/holdfast/simulate/redismodel"
)

// A client relies for a while on what it has heard about its server's set. The time in which its
// machine was suspended counts, too: an operator who moves the server waits for that while.
func TestSetIsAskedForAfterASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redismodel.New(redismodel.Options{})
		open := func() *protocol.Backend {
			b := protocol.New(server.Client(redismodel.Link{}).Transport(), protocol.Options{})
			t.Cleanup(func() { b.Close() })
			return b
		}
		three, five := driver.Set{Nodes: 3, Quorum: 2}, driver.Set{Nodes: 5, Quorum: 3}
		b, operator := open(), open()
		b.Join(three)
		hold := func(key string) error {
			_, err := b.Acquire(t.Context(), driver.Claim{Key: key, Owner: driver.NewOwner(""),
				TTL: time.Minute})
			return err
		}
		if err := hold("a"); err != nil {
			t.Fatal(err)
		}
		if set, err := operator.Move(t.Context(), three, five); err != nil || set != five {
			t.Fatalf("Move = %v, %v", set, err)
		}
		if err := hold("b"); err != nil {
			t.Fatalf("just after it was asked: %v; the case is that it is relied on", err)
		}
		clock.SimulateSuspend(driver.SetFresh)
		var e *driver.SetError
		if err := hold("c"); !errors.As(err, &e) || e.Have != five {
			t.Errorf("after a suspend of %v: %v; want a SetError", driver.SetFresh, err)
		}
	})
}
