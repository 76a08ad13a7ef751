package redsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/with/redsync"
	"github.com/holdfast-go/holdfast/with/redsync/redis"
)

// curious is a context that asks something when what was made of it ends.
type curious struct {
	context.Context
	ask func()
}

func (c curious) Value(any) any { return nil }

func (c curious) AfterFunc(f func()) (stop func() bool) {
	end := context.AfterFunc(c.Context, f)
	return func() bool {
		c.ask()
		return end()
	}
}

// A context that ends with the lock may call the Mutex, also if Until finds the end.
func TestContextOfALockCallsTheMutex(t *testing.T) {
	for range 100 { // the end is found by Until, or by the Locker
		synctest.Test(t, func(t *testing.T) {
			memory := memhold.New()
			defer memory.Close()
			client := memory.Client()
			rs := redsync.New(redis.NewPool(client))
			m := rs.NewMutex("k", redsync.WithRenewal())
			if err := m.Lock(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := make(chan struct{})
			m.Held().Context(curious{ctx, func() {
				m.Value()
				close(asked)
			}})
			client.Faults().Freeze()
			time.Sleep(time.Until(m.Until()))
			m.Until()
			<-asked
			client.Faults().Thaw()
			rs.Close()
		})
	}
}
