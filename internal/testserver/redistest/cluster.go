//go:build unix

package redistest

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Cluster is a Redis Cluster: shards of a primary and replicas.
type Cluster struct {
	Primaries []*Server   // one for each shard
	Replicas  [][]*Server // of each shard
}

// nodeTimeout is how many milliseconds a server of a cluster may be silent before the others
// declare it failed. It is longer than any pause of a busy machine, because a cluster with a failed
// server serves nothing.
const nodeTimeout = "600000"

// StartCluster starts a cluster with its slots spread evenly over the shards. No replica takes over
// by itself. A failover loses what the primary has confirmed meanwhile, and a busy machine must not
// cause one. See [Cluster.TakeOver].
func StartCluster(t testing.TB, shards, replicas int, options ...Option) *Cluster {
	t.Helper()
	c := &Cluster{Replicas: make([][]*Server, shards)}
	start := func() *Server {
		return Start(t,
			append([]Option{WithCluster(t), WithArgs("--cluster-config-file", "nodes.conf",
				"--cluster-node-timeout", nodeTimeout, "--cluster-replica-no-failover", "yes",
				"--repl-diskless-sync-delay", "0", "--repl-timeout", "60")}, options...)...)
	}
	var all []*Server
	for i := range shards {
		p := start()
		c.Primaries = append(c.Primaries, p)
		all = append(all, p)
		for range replicas {
			r := start()
			c.Replicas[i] = append(c.Replicas[i], r)
			all = append(all, r)
		}
	}
	for i, p := range c.Primaries {
		add := []string{"CLUSTER", "ADDSLOTS"}
		for slot := i * 16384 / shards; slot < (i+1)*16384/shards; slot++ {
			add = append(add, strconv.Itoa(slot))
		}
		p.Do(t, add...)
		p.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, s := range all {
		testserver.Eventually(t, "the cluster knows all its servers", func() error {
			// A server forgets another whose greeting takes longer than the node timeout. It hears
			// of the others from the first.
			nodes := s.String(t, "CLUSTER", "NODES")
			if s != all[0] && !strings.Contains(nodes, all[0].Addr) {
				s.meet(t, all[0])
			}
			if s == all[0] {
				for _, other := range all[1:] {
					if !strings.Contains(nodes, other.Addr) {
						s.meet(t, other)
					}
				}
			}
			known := strings.Count(nodes, " connected") - strings.Count(nodes, "handshake")
			return testserver.Not(known == len(all), "%s knows %d of %d", s.Addr, known, len(all))
		})
	}
	for i, replicas := range c.Replicas {
		id := c.Primaries[i].String(t, "CLUSTER", "MYID")
		for _, r := range replicas {
			testserver.Eventually(t, "the replica follows", func() error {
				_, err := r.Try("CLUSTER", "REPLICATE", id)
				return err
			})
		}
	}
	c.awaitOK(t)
	return c
}

func (s *Server) meet(t testing.TB, other *Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(other.Addr)
	command := []string{"CLUSTER", "MEET", host, port}
	for i, arg := range other.Args {
		if arg == "--cluster-port" {
			command = append(command, other.Args[i+1])
		}
	}
	s.Do(t, command...)
}

// WithCluster makes the server run in cluster mode. The servers of a cluster talk on a second port,
// by default 10,000 above the first, which may be no port at all. Servers before Redis 7 know no
// other.
func WithCluster(t testing.TB) Option {
	t.Helper()
	if AtLeast(t, 7, 0) {
		return WithArgs("--cluster-enabled", "yes", "--cluster-port",
			strconv.Itoa(testserver.FreePort(t)))
	}
	return func(s *Server) {
		s.pair = true
		s.Args = append(s.Args, "--cluster-enabled", "yes")
	}
}

// awaitOK waits until all servers that run agree that all is well.
func (c *Cluster) awaitOK(t testing.TB) {
	t.Helper()
	for i, p := range c.Primaries {
		for _, s := range append([]*Server{p}, c.Replicas[i]...) {
			testserver.Eventually(t, "the cluster is well", func() error {
				info, err := s.Try("CLUSTER", "INFO")
				if err != nil {
					return err
				}
				text, _ := info.(string)
				return testserver.Not(strings.Contains(text, "cluster_state:ok") &&
					strings.Contains(text, "cluster_slots_ok:16384"), "%s", text)
			})
		}
		for _, r := range c.Replicas[i] {
			testserver.Eventually(t, "the replica is up to date", func() error {
				up := r.Info(t, "master_link_status")
				return testserver.Not(up == "up", "%s", up)
			})
		}
	}
}

// URL returns redis+cluster:// with all primaries.
func (c *Cluster) URL() string {
	var hosts []string
	for _, p := range c.Primaries {
		hosts = append(hosts, p.Addr)
	}
	scheme, login := "redis", ""
	if c.Primaries[0].tls != nil {
		scheme = "rediss"
	}
	if secret := c.Primaries[0].secret; secret != "" {
		login = ":" + secret + "@"
	}
	return scheme + "+cluster://" + login + strings.Join(hosts, ",")
}

// Owner returns the primary whose slots include the one of key.
func (c *Cluster) Owner(t testing.TB, key string) *Server {
	t.Helper()
	slot := c.Primaries[0].Int(t, "CLUSTER", "KEYSLOT", key)
	for i, p := range c.Primaries {
		if slot < int64((i+1)*16384/len(c.Primaries)) {
			return p
		}
	}
	t.Fatalf("nobody has slot %d", slot)
	return nil
}

// MoveSlot moves a slot with all its keys from one primary to another, calling between before the
// last step.
func (c *Cluster) MoveSlot(t testing.TB, slot uint16, from, to *Server, between func()) {
	t.Helper()
	move := c.openSlot(t, slot, from, to)
	for keys := from.keysIn(t, slot); len(keys) > 0; keys = from.keysIn(t, slot) {
		for _, key := range keys {
			move(key)
		}
	}
	between()
	c.closeSlot(t, slot, from, to)
}

// HalfMoveSlot begins to move the slot of a key to another primary, with those of its keys that
// first reports. The function that it returns moves the others and ends the move.
func (c *Cluster) HalfMoveSlot(t testing.TB, key string,
	first func(key string) bool) (finish func()) {
	t.Helper()
	slot := uint16(c.Primaries[0].Int(t, "CLUSTER", "KEYSLOT", key))
	from, to := c.Owner(t, key), c.Primaries[0]
	if from == to {
		to = c.Primaries[1]
	}
	move := c.openSlot(t, slot, from, to)
	for _, key := range from.keysIn(t, slot) {
		if first(key) {
			move(key)
		}
	}
	return func() {
		t.Helper()
		for keys := from.keysIn(t, slot); len(keys) > 0; keys = from.keysIn(t, slot) {
			for _, key := range keys {
				move(key)
			}
		}
		c.closeSlot(t, slot, from, to)
	}
}

// closeSlot ends what openSlot has begun.
func (c *Cluster) closeSlot(t testing.TB, slot uint16, from, to *Server) {
	t.Helper()
	number, toID := strconv.Itoa(int(slot)), to.String(t, "CLUSTER", "MYID")
	for _, s := range []*Server{to, from} {
		s.Do(t, "CLUSTER", "SETSLOT", number, "NODE", toID)
	}
	for i, p := range c.Primaries {
		for _, s := range append([]*Server{p}, c.Replicas[i]...) {
			testserver.Eventually(t, "all know where the slot is", func() error {
				address, err := s.serving(int64(slot))
				if err != nil {
					return err
				}
				return testserver.Not(address == to.Addr, "%s says %s", s.Addr, address)
			})
		}
	}
}

// serving returns the address of the server that serves the slot, according to s.
func (s *Server) serving(slot int64) (address string, err error) {
	reply, err := s.Try("CLUSTER", "SLOTS")
	if err != nil {
		return "", err
	}
	for _, entry := range reply.([]any) {
		fields := entry.([]any)
		if fields[0].(int64) <= slot && slot <= fields[1].(int64) {
			owner := fields[2].([]any)
			return net.JoinHostPort(fmt.Sprint(owner[0]), fmt.Sprint(owner[1])), nil
		}
	}
	return "", fmt.Errorf("slot %d is served by nobody", slot)
}

// openSlot begins to move a slot from one primary to another, and does not finish. It returns a
// function that moves a key.
func (c *Cluster) openSlot(t testing.TB, slot uint16, from, to *Server) (move func(key string)) {
	t.Helper()
	number := strconv.Itoa(int(slot))
	to.Do(t, "CLUSTER", "SETSLOT", number, "IMPORTING", from.String(t, "CLUSTER", "MYID"))
	from.Do(t, "CLUSTER", "SETSLOT", number, "MIGRATING", to.String(t, "CLUSTER", "MYID"))
	host, port, _ := net.SplitHostPort(to.Addr)
	return func(key string) {
		t.Helper()
		from.Do(t, "MIGRATE", host, port, key, "0", "5000")
	}
}

// AwaitPublishing waits until what one primary publishes arrives at all others. Valkey 9.1 was seen
// to drop some of what was published soon after the start.
func (c *Cluster) AwaitPublishing(t testing.TB) {
	t.Helper()
	for _, to := range c.Primaries {
		client, err := to.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close() // which ends the goroutine
		if _, err := client.Try("SUBSCRIBE", "probe"); err != nil {
			t.Fatal(err)
		}
		var heard sync.Map
		go func() {
			for message, err := client.Read(); err == nil; message, err = client.Read() {
				heard.Store(message.([]any)[2], true)
			}
		}()
		for _, from := range c.Primaries {
			testserver.Eventually(t, to.Addr+" hears of "+from.Addr, func() error {
				from.Do(t, "PUBLISH", "probe", from.Addr)
				_, ok := heard.Load(from.Addr)
				return testserver.Not(ok, "not yet")
			})
		}
	}
}

// FlushAll empties all primaries.
func (c *Cluster) FlushAll(t testing.TB) {
	t.Helper()
	for _, p := range c.Primaries {
		p.Do(t, "FLUSHALL")
	}
}
