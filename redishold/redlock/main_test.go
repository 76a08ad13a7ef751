package redlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold/redlock"
)

// patience bounds every wait for what must come. It only ends tests that have failed.
const patience = 2 * time.Minute

// longTTL is a lease that no test waits for to end.
const longTTL = 50 * time.Second

// calm is for tests in which a slow node must not count as down: a pause of a busy machine may not
// look like that.
const calm = "restart-guard=0s&node-timeout=3s"

// brisk is calm for leases that tests wait for the end of, and briefTTL the shortest one: a node
// timeout has to leave something of it.
const (
	brisk    = "restart-guard=0s&node-timeout=1800ms"
	briefTTL = 2 * time.Second
)

func TestMain(m *testing.M) {
	testserver.PlayHolder(func(ctx context.Context, url string) (driver.Backend, error) {
		return redlock.Open(ctx, url)
	})
	// Tests mostly wait for servers, so more of them may run than there are processors.
	flag.Parse()
	flag.Set("test.parallel", "12")
	os.Exit(m.Run())
}

// cluster is a set of independent servers.
type cluster struct {
	servers []*redistest.Server
}

// start starts n servers.
func start(t testing.TB, n int, options ...redistest.Option) *cluster {
	t.Helper()
	c := new(cluster)
	for range n {
		c.servers = append(c.servers, redistest.Start(t, options...))
	}
	return c
}

func (c *cluster) url(query string) string {
	var hosts []string
	for _, s := range c.servers {
		hosts = append(hosts, s.Addr)
	}
	return "redlock://" + strings.Join(hosts, ",") + "?set=test&" + query
}

// client is a backend, with a proxy of its own in front of each server if it was made with
// behindProxies.
type client struct {
	*quorum.Quorum
	t       testing.TB
	proxies []*redistest.Proxy
}

// client opens a backend that talks to the servers directly.
func (c *cluster) client(t testing.TB, query string, options ...redlock.Option) *client {
	t.Helper()
	return &client{Quorum: open(t, c.url(query), options...), t: t}
}

// behindProxies opens a backend that can be cut off from servers.
func (c *cluster) behindProxies(t testing.TB, query string, options ...redlock.Option) *client {
	t.Helper()
	k := &client{t: t}
	var hosts []string
	for _, s := range c.servers {
		p := redistest.NewProxy(t, s)
		k.proxies = append(k.proxies, p)
		hosts = append(hosts, p.Addr)
	}
	k.Quorum = open(t, "redlock://"+strings.Join(hosts, ",")+"?set=test&"+query, options...)
	return k
}

func open(t testing.TB, url string, options ...redlock.Option) *quorum.Quorum {
	t.Helper()
	q, err := redlock.Open(t.Context(), url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return q
}

// cut parts the client from nodes, or joins it with them again.
func (k *client) cut(off bool, nodes ...int) {
	for _, i := range nodes {
		k.proxies[i].Refuse(off)
		if off {
			k.proxies[i].Break()
		}
	}
}

// newClaim makes a claim on key, which proposes the time as its token, as holdfast does.
func newClaim(key string, ttl time.Duration) driver.Claim {
	return driver.Claim{Key: key, Owner: driver.NewOwner(driver.OwnerSuffix("test")), TTL: ttl,
		Token: driver.Token(time.Now().UnixMicro())}
}

// limit bounds one call.
func limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// ask asks once for the claim.
func (k *client) ask(claim driver.Claim) (driver.Result, error) {
	ctx, cancel := limit()
	defer cancel()
	return k.Acquire(ctx, claim)
}

// hold asks once for the claim, which must be granted.
func (k *client) hold(claim driver.Claim) driver.Result {
	k.t.Helper()
	r, err := k.ask(claim)
	if err != nil || r.State != driver.Held {
		k.t.Fatalf("Acquire = %v held by %q, %v; want held", r.State, r.Holder, err)
	}
	return r
}

// busy asks once for the claim, which must be held by another.
func (k *client) busy(claim driver.Claim) driver.Result {
	k.t.Helper()
	r, err := k.ask(claim)
	if err != nil || r.State != driver.Busy {
		k.t.Fatalf("Acquire = %v, %v; want busy", r.State, err)
	}
	return r
}

// granted asks for the claim until it is granted.
func (k *client) granted(claim driver.Claim) driver.Result {
	k.t.Helper()
	var result driver.Result
	testserver.Eventually(k.t, "the claim is granted", func() error {
		r, err := k.ask(claim)
		if driver.Permanent(err) {
			k.t.Fatal(err)
		}
		result = r
		return errors.Join(err, testserver.Not(r.State == driver.Held, "%v, held by %s",
			r.State, r.Holder))
	})
	return result
}

// renew renews the claim. The result must be as wanted.
func (k *client) renew(claim driver.Claim, want driver.State) {
	k.t.Helper()
	ctx, cancel := limit()
	defer cancel()
	results, err := k.Renew(ctx, []driver.Claim{claim})
	if err != nil || results[0].State != want {
		k.t.Fatalf("Renew = %+v, %v; want %v", results, err, want)
	}
}

// release releases the claim. The result must be as wanted.
func (k *client) release(claim driver.Claim, want driver.State) {
	k.t.Helper()
	ctx, cancel := limit()
	defer cancel()
	if r, err := k.Release(ctx, claim); err != nil || r.State != want {
		k.t.Fatalf("Release = %v, %v; want %v", r.State, err, want)
	}
}

// locksOn returns the keys of locks and queues on a server: all but fences, the set and the memory,
// which stay.
func locksOn(s *redistest.Server) (keys []string, err error) {
	reply, err := s.Try("KEYS", "*")
	if err != nil {
		return nil, err
	}
	for _, key := range reply.([]any) {
		if name := key.(string); name != "holdfast:s" && !strings.HasPrefix(name, "holdfast:m:") &&
			!strings.HasPrefix(name, "holdfast:f:{") {
			keys = append(keys, key.(string))
		}
	}
	return keys, nil
}

// nothingLeft waits until no server has a lock or a queue, which must be long before a lease of
// longTTL could end.
func (c *cluster) nothingLeft(t testing.TB) {
	t.Helper()
	for i, s := range c.servers {
		testserver.Eventually(t, fmt.Sprintf("nothing is left on server %d", i), func() error {
			keys, err := locksOn(s)
			return errors.Join(err, testserver.Not(len(keys) == 0, "left: %q", keys))
		})
	}
}

// heldOn returns on how many servers the claim holds its key.
func (c *cluster) heldOn(t testing.TB, claim driver.Claim) (n int) {
	t.Helper()
	for _, s := range c.servers {
		if s.String(t, "GET", claim.Key) == claim.Owner {
			n++
		}
	}
	return n
}

// pending reports whether a node still has something to answer.
func (k *client) pending() bool {
	for _, n := range k.Status().Nodes {
		if n.Pending > 0 || n.Owed > 0 {
			return true
		}
	}
	return false
}

// healthy waits until the client counts all nodes as up, and they have answered all that it has
// asked.
func (k *client) healthy() {
	k.t.Helper()
	testserver.Eventually(k.t, "all nodes are up", func() error {
		// Nodes are looked at when they are asked. The key is nobody else's.
		owner := driver.NewOwner("")
		claim := newClaim("health-"+owner, 5*time.Second)
		r, err := k.ask(claim)
		ctx, cancel := limit()
		defer cancel()
		_, failed := k.Release(ctx, claim)
		err = errors.Join(err, failed, testserver.Not(r.State == driver.Held, "%v", r.State))
		for _, n := range k.Status().Nodes {
			if n.State != quorum.Up || n.Err != nil {
				err = errors.Join(err, fmt.Errorf("%s is %v: %w", n.Name, n.State, n.Err))
			}
		}
		return err
	})
	testserver.Eventually(k.t, "nothing is under way", func() error {
		return testserver.Not(!k.pending(), "something is")
	})
}
