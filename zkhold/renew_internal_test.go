package zkhold

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// fakeBackend has f use a Backend on a server that is only played, in fake time, and a claim that
// holds its key for the TTL.
func fakeBackend(t *testing.T, ttl time.Duration, f func(*testing.T, *Backend, *claim)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := Open(t.Context(), "zookeeper://h",
			WithDialer(func(string, string, time.Duration) (net.Conn, error) {
				client, server := net.Pipe()
				go serve(server, new(atomic.Int64))
				return client, nil
			}))
		if err != nil {
			t.Fatal(err)
		}
		c, _ := b.claimOf(driver.Claim{Key: "k", Owner: "o", TTL: ttl})
		b.held(c, &party{Node: b.names().next()}, ttl)
		f(t, b, c)
		time.Sleep(time.Millisecond)
		synctest.Wait() // the client leaks a goroutine if it is closed just when it asks
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A renewal whose transaction succeeds is no renewal unless the session is sure to last as long as
// the claim. After a time without an answer from the leader it is not, for a while.
func TestRenewalIsSureOfTheSession(t *testing.T) {
	for name, silent := range map[string]bool{"without a gap": false, "after a gap": true} {
		t.Run(name, func(t *testing.T) {
			ttl := share(DefaultSession)
			fakeBackend(t, ttl, func(t *testing.T, b *Backend, c *claim) {
				if silent {
					b.session.mu.Lock()
					b.session.last -= 2 * gap(b.session.timeout)
					b.session.mu.Unlock()
				}
				results, err := b.Renew(t.Context(),
					[]driver.Claim{{Key: "k", Owner: "o", TTL: ttl}})
				held := err == nil && results[0].State == driver.Held
				if held == silent {
					t.Errorf("held: %v, %+v, %v", held, results, err)
				}
			})
		})
	}
}

// An answer that says that the node is there comes too late for a claim that is over, was ended, or
// has another node by now.
func TestRenewedTooLate(t *testing.T) {
	const ttl = 10 * time.Second
	for name, change := range map[string]func(b *Backend, c *claim){
		"in time":      nil,
		"over":         func(_ *Backend, c *claim) { c.deadline = driver.LeaseClock() },
		"ending":       func(_ *Backend, c *claim) { c.ending = true },
		"another node": func(_ *Backend, c *claim) { c.node += "1" },
		"forgotten":    func(b *Backend, c *claim) { delete(b.claims, c.identity) },
	} {
		t.Run(name, func(t *testing.T) {
			fakeBackend(t, ttl, func(t *testing.T, b *Backend, c *claim) {
				b.mu.Lock()
				k, want := known{mine: c, node: c.node}, driver.Held
				if change != nil {
					change(b, c)
					want = driver.Lost
				}
				b.mu.Unlock()
				if state := b.renewed(k, ttl); state != want {
					t.Errorf("%v; want %v", state, want)
				}
			})
		})
	}
}
