package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// bubble runs f in a bubble of fake time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// roundTrip is longer than a request and its answer take in a cluster.
const roundTrip = 2 * time.Millisecond

// cluster is N simulated servers whose messages take up to a millisecond, and are never lost.
type cluster struct {
	*network
	t       testing.TB
	clients []*client
}

// client is a Quorum with its connections to the servers of a cluster.
type client struct {
	*quorum.Quorum
	conns   []*conn
	cluster *cluster
	made    int
}

func newCluster(t testing.TB, n int) *cluster {
	return &cluster{network: newNetwork(1, n, weather{delay: roundTrip / 4}, time.Second), t: t}
}

// client returns a new client, which is closed at the end of the test.
func (c *cluster) client(options ...quorum.Option) *client {
	c.t.Helper()
	cl := &client{conns: c.dial(), cluster: c}
	q, err := quorum.New(backends(cl.conns), append([]quorum.Option{quorum.WithGuard(0)},
		options...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	cl.Quorum = q
	c.clients = append(c.clients, cl)
	c.t.Cleanup(func() {
		if err := q.Close(); err != nil {
			c.t.Errorf("Close: %v", err)
		}
	})
	return cl
}

// held returns a cluster of n nodes and a client with a claim that holds all of them.
func held(t testing.TB, n int) (*cluster, *client, driver.Claim) {
	c := newCluster(t, n)
	a := c.client()
	claim := a.claim()
	a.hold(claim)
	rest()
	return c, a, claim
}

// do changes servers and connections.
func (c *cluster) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cluster) crash(servers ...int) {
	c.do(func() {
		for _, i := range servers {
			c.servers[i].crash(false)
		}
	})
}

func (c *cluster) restart(forget bool, servers ...int) {
	left := kept
	if forget {
		left = forgotten
	}
	c.restartWith(left, servers...)
}

func (c *cluster) restartWith(left data, servers ...int) {
	c.do(func() {
		for _, i := range servers {
			c.servers[i].restart(left)
		}
	})
}

func (c *cluster) freeze(servers ...int) {
	c.do(func() {
		for _, i := range servers {
			c.servers[i].frozen = true
		}
	})
}

func (c *cluster) thaw(servers ...int) {
	c.do(func() {
		for _, i := range servers {
			c.servers[i].thaw()
		}
	})
}

// cut cuts the client's connections to servers, or mends them.
func (c *client) cut(cut bool, servers ...int) {
	c.cluster.do(func() {
		for _, i := range servers {
			c.conns[i].cut = cut
		}
	})
}

// deaf has the client's calls not end with their contexts.
func (c *client) deaf() {
	c.cluster.do(func() {
		for _, conn := range c.conns {
			conn.deaf = true
		}
	})
}

// holders returns who holds the key on each server.
func (c *cluster) holders(key string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var owners []string
	for _, s := range c.servers {
		owner := ""
		if k := s.keys[key]; k != nil && s.now() < k.expires {
			owner = k.owner
		}
		owners = append(owners, owner)
	}
	return owners
}

// holds counts the servers on which the claim holds its key.
func (c *cluster) holds(claim driver.Claim) (n int) {
	for _, owner := range c.holders(claim.Key) {
		if owner == claim.Owner {
			n++
		}
	}
	return n
}

// clean checks that no server knows of the key.
func (c *cluster) clean(key string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		now := s.now()
		k := s.keys[key]
		if k == nil {
			continue
		}
		if k.owner != "" && now < k.expires {
			c.t.Errorf("server %d has %q, held by %s for another %v", s.index, key, k.owner,
				k.expires-now)
		}
		for _, w := range k.queue {
			if now < w.until {
				c.t.Errorf("server %d has %s in the queue of %q", s.index, w.owner, key)
			}
		}
	}
}

// claim returns a new claim on key "k" for 10 seconds, so the node timeout is 50 ms.
func (c *client) claim() driver.Claim {
	c.made++
	return driver.Claim{Key: "k", Owner: fmt.Sprintf("%d.%d", c.conns[0].client, c.made),
		TTL: 10 * time.Second, Token: c.now()}
}

// now is the clock in microseconds, which the kernel proposes as a token.
func (c *client) now() driver.Token { return driver.Token(time.Now().UnixMicro()) }

// queued returns a new claim that queues.
func (c *client) queued() driver.Claim {
	claim := c.claim()
	claim.Queue = true
	return claim
}

func (c *client) hold(claim driver.Claim) driver.Result {
	c.cluster.t.Helper()
	r, err := c.Acquire(context.Background(), claim)
	if err != nil || r.State != driver.Held {
		c.cluster.t.Fatalf("Acquire = %v, %v; want held", r.State, err)
	}
	return r
}

func (c *client) busy(claim driver.Claim) driver.Result {
	c.cluster.t.Helper()
	r, err := c.Acquire(context.Background(), claim)
	if err != nil || r.State != driver.Busy {
		c.cluster.t.Fatalf("Acquire = %v, %v; want busy", r.State, err)
	}
	return r
}

// fail makes an acquisition that must fail, and returns the error.
func (c *client) fail(claim driver.Claim) error {
	c.cluster.t.Helper()
	r, err := c.Acquire(context.Background(), claim)
	if err == nil {
		c.cluster.t.Fatalf("Acquire = %v; want an error", r.State)
	}
	return err
}

func (c *client) release(claim driver.Claim, want driver.State) {
	c.cluster.t.Helper()
	r, err := c.Release(context.Background(), claim)
	if err != nil || r.State != want {
		c.cluster.t.Fatalf("Release = %v, %v; want %v", r.State, err, want)
	}
}

func (c *client) renew(claim driver.Claim, want driver.State) driver.Result {
	c.cluster.t.Helper()
	results, err := c.Renew(context.Background(), []driver.Claim{claim})
	if err != nil {
		c.cluster.t.Fatalf("Renew: %v", err)
	}
	if results[0].State != want {
		c.cluster.t.Fatalf("Renew = %v (%v); want %v", results[0].State, results[0].Err, want)
	}
	return results[0]
}

// took measures f in fake time.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// soon checks that f takes no longer than n round trips.
func (c *cluster) soon(what string, n int, f func()) {
	c.t.Helper()
	if d := took(f); d > time.Duration(n)*roundTrip {
		c.t.Errorf("%s took %v; want at most %d round trips, which is %v", what, d, n,
			time.Duration(n)*roundTrip)
	}
}

// rest lets stragglers finish.
func rest() {
	time.Sleep(time.Second)
	synctest.Wait()
}
