package redishold_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// A waiter that could not ask for longer than its presence still gets the key: by coming back, or
// by asking for what it was not told.
func TestWaiterOutlivesItsPresence(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]func(t *testing.T, s *redistest.Server, p *redistest.Proxy,
		release func()){
		// It is taken for gone when the holder releases, so nobody is handed the key.
		"passed over": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy, release func()) {
			s.Freeze()
			elapse(t, protocol.Presence)
			s.Thaw()
			release()
		},
		// It is handed the key and is told nothing, neither by a notice nor by an answer.
		"not told": func(t *testing.T, s *redistest.Server, p *redistest.Proxy, release func()) {
			p.SetReplies(redistest.Hold)
			release()
			elapse(t, protocol.Presence)
			p.SetReplies(redistest.Pass)
		},
		// The same, and the notice never comes.
		"never told": func(t *testing.T, s *redistest.Server, p *redistest.Proxy, release func()) {
			p.SetReplies(redistest.Hold)
			release()
			elapse(t, protocol.Presence)
			p.Break()
			p.SetReplies(redistest.Pass)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server)
			direct := open(t, server.URL())
			holder := newLocker(t, direct, holdfast.WithTTL(time.Minute))
			waiter := newLocker(t, open(t, proxy.URL()), holdfast.WithTTL(time.Minute))
			lock, err := holder.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan error, 1)
			go func() {
				second, err := waiter.Acquire(t.Context(), "k")
				if err == nil {
					err = second.Release(t.Context())
				}
				got <- err
			}()
			testserver.Eventually(t, "the waiter is queued", func() error {
				entry, err := direct.Inspect(t.Context(), "lock:k")
				return errors.Join(err, testserver.Not(len(entry.Waiters) == 1, "%+v", entry))
			})
			pause(t, server, proxy, func() {
				testserver.Eventually(t, "released", func() error {
					return lock.Release(t.Context())
				})
			})
			select {
			case err := <-got:
				if err != nil {
					t.Errorf("Acquire: %v", err)
				}
			case <-time.After(patience):
				t.Error("the waiter never got the key")
			}
		})
	}
}

// elapse waits until d has passed, and a little more.
func elapse(t *testing.T, d time.Duration) {
	t.Helper()
	end := time.Now().Add(d + d/5)
	testserver.Eventually(t, "the time has passed", func() error {
		return testserver.Not(time.Now().After(end), "not yet")
	})
}

// stay makes the waiters on a server with that clock present for long, however slow the machine is.
func stay(t *testing.T, clock *redistest.Clock) {
	t.Helper()
	clock.Step(t, -time.Minute)
}
