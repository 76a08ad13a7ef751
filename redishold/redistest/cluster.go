package redistest

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
)

// Cluster is a Redis Cluster: shards of a primary and replicas.
type Cluster struct {
	Primaries []*Server   // one for each shard
	Replicas  [][]*Server // of each shard
}

// nodeTimeout is after how many milliseconds without an answer the servers of a cluster declare one of them
// failed.
const nodeTimeout = "1000"

// StartCluster starts a cluster with its slots spread evenly over the shards.
func StartCluster(t testing.TB, shards, replicas int, options ...Option) *Cluster {
	t.Helper()
	c := &Cluster{Replicas: make([][]*Server, shards)}
	start := func() *Server {
		// The servers find each other on a port of their own, 10,000 above by default: that may be no port at
		// all.
		bus := strconv.Itoa(FreePort(t))
		return Start(t, append([]Option{WithArgs("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", bus,
			"--cluster-node-timeout", nodeTimeout, "--repl-diskless-sync-delay", "0", "--repl-timeout", "60")}, options...)...)
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
		p.Do(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*16384/shards), strconv.Itoa((i+1)*16384/shards-1))
		p.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, s := range all[1:] {
		all[0].meet(t, s)
	}
	for _, s := range all {
		Eventually(t, "the cluster knows all its servers", func() error {
			known := strings.Count(s.String(t, "CLUSTER", "NODES"), " connected")
			return Not(known == len(all), "%s knows %d of %d", s.Addr, known, len(all))
		})
	}
	for i, replicas := range c.Replicas {
		id := c.Primaries[i].String(t, "CLUSTER", "MYID")
		for _, r := range replicas {
			Eventually(t, "the replica follows", func() error {
				_, err := r.Try("CLUSTER", "REPLICATE", id)
				return err
			})
		}
	}
	c.AwaitOK(t)
	return c
}

func (s *Server) meet(t testing.TB, other *Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(other.Addr)
	bus := ""
	for i, arg := range other.args {
		if arg == "--cluster-port" {
			bus = other.args[i+1]
		}
	}
	s.Do(t, "CLUSTER", "MEET", host, port, bus)
}

// AwaitOK waits until all servers that run agree that all is well.
func (c *Cluster) AwaitOK(t testing.TB) {
	t.Helper()
	for i, p := range c.Primaries {
		for _, s := range append([]*Server{p}, c.Replicas[i]...) {
			Eventually(t, "the cluster is well", func() error {
				info, err := s.Try("CLUSTER", "INFO")
				if err != nil {
					return err
				}
				text, _ := info.(string)
				return Not(strings.Contains(text, "cluster_state:ok") && strings.Contains(text, "cluster_slots_ok:16384"), "%s", text)
			})
		}
		for _, r := range c.Replicas[i] {
			Eventually(t, "the replica is up to date", func() error {
				up := r.Info(t, "master_link_status")
				return Not(up == "up", "%s", up)
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

// MoveSlot moves a slot with all its keys from one primary to another, calling between before the last step.
func (c *Cluster) MoveSlot(t testing.TB, slot uint16, from, to *Server, between func()) {
	t.Helper()
	number := strconv.Itoa(int(slot))
	fromID, toID := from.String(t, "CLUSTER", "MYID"), to.String(t, "CLUSTER", "MYID")
	to.Do(t, "CLUSTER", "SETSLOT", number, "IMPORTING", fromID)
	from.Do(t, "CLUSTER", "SETSLOT", number, "MIGRATING", toID)
	host, port, _ := net.SplitHostPort(to.Addr)
	for {
		keys := from.Do(t, "CLUSTER", "GETKEYSINSLOT", number, "100").([]any)
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			from.Do(t, "MIGRATE", host, port, key.(string), "0", "5000")
		}
	}
	between()
	for _, s := range []*Server{to, from} {
		s.Do(t, "CLUSTER", "SETSLOT", number, "NODE", toID)
	}
	for i, p := range c.Primaries {
		for _, s := range append([]*Server{p}, c.Replicas[i]...) {
			Eventually(t, "all know where the slot is", func() error {
				_, err := s.Try("CLUSTER", "INFO")
				if err != nil {
					return err
				}
				reply := s.Do(t, "CLUSTER", "SLOTS").([]any)
				for _, entry := range reply {
					fields := entry.([]any)
					if fields[0].(int64) <= int64(slot) && int64(slot) <= fields[1].(int64) {
						owner := fields[2].([]any)
						return Not(fmt.Sprint(owner[1]) == port, "%v", owner)
					}
				}
				return fmt.Errorf("slot %d is served by nobody", slot)
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
