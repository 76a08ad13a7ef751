//go:build unix

package lab

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/etcdhold"
)

// Promises are the modes in which every promise has to hold, whatever the nemesis does: it breaks
// none of the documented assumptions.
var Promises = append(manned(
	Config{Nodes: 1, Persistence: Always, GoRedis: true},
	Config{Nodes: 3, Persistence: Memory, Guard: guard, GoRedis: true},
	Config{Nodes: 5, Persistence: EverySec, Guard: guard, GoRedis: true, TLS: true},
	Config{Nodes: 3, Persistence: Always, Guard: guard, Skew: time.Hour},
	Config{Nodes: 1, Persistence: Always, GoRedis: true, Mute: true},
	Config{Nodes: 3, Persistence: Always, Guard: guard, GoRedis: true, Replacing: true},
	Config{Nodes: 3, Persistence: Always, Guard: guard, GoRedis: true, Grown: 5},
	Config{Nodes: 3, Persistence: Always, GoRedis: true, Cluster: true},
), Stores)

// Stores is the mode in which clients write to every store that has a guard. Its lease is short,
// because most of the time is spent waiting for one to end.
var Stores = Config{Nodes: 1, Persistence: Always, GoRedis: true, Stores: true, Stale: 200,
	Clients: 8, Keys: 4, TTL: 400 * time.Millisecond}

// Limits are the modes in which the nemesis also breaks the documented assumptions of exclusion.
// There may be two holders then, and tokens still have to rise.
var Limits = manned(
	Config{Nodes: 1, Persistence: Memory, GoRedis: true, Limits: true},
	Config{Nodes: 1, Persistence: EverySec, GoRedis: true, Limits: true},
	Config{Nodes: 3, Persistence: Memory, Guard: guard, GoRedis: true, Limits: true},
	Config{Nodes: 5, Persistence: EverySec, Guard: guard, GoRedis: true, Limits: true},
	Config{Nodes: 2, Persistence: Always, GoRedis: true, Limits: true, Sentinel: true,
		Faults: failovers},
	Config{Nodes: 3, Persistence: Always, GoRedis: true, Limits: true, Cluster: true,
		Replicas: true, Faults: failovers},
)

// Coordinators are the modes on other systems than Redis. In those that may break assumptions, the
// same holds as in [Limits].
var Coordinators = append(manned(
	Config{System: Etcd, Nodes: 3, Persistence: Always},
	Config{System: Postgres, Nodes: 2, Persistence: Confirmed},
	Config{System: Postgres, Nodes: 2, Persistence: Confirmed, Pooler: true},
	Config{System: ZooKeeper, Nodes: 3, Persistence: Always},
	Config{System: Etcd, Nodes: 3, Persistence: Always, Limits: true},
	Config{System: Postgres, Nodes: 2, Persistence: Unconfirmed, Limits: true},
), EtcdStores)

// EtcdStores is [Stores] with the locks on etcd.
var EtcdStores = Config{System: Etcd, Nodes: 3, Persistence: Always, Stores: true, Stale: 200,
	Clients: 8, Keys: 4, TTL: etcdhold.MinTTL}

// guard is the quarantine of modes over several servers.
const guard = 2 * time.Second

// manned gives modes so few goroutines that all of them can run side by side on a small machine.
// Most acquisitions are those that hold a lock only for a moment. One over several servers takes as
// much of the machine's time as several on one server.
func manned(modes ...Config) []Config {
	for i := range modes {
		c := &modes[i]
		c.Workers, c.Keys, c.Hasty, c.Sets, c.Permits, c.Sharing = 3, 4, 3, 1, 2, true
		if c.voters() > 1 {
			c.Hasty = 1
		}
	}
	return modes
}

// failovers are the faults where a replica takes over. No server is restarted: it might come back
// as a primary.
var failovers = []string{"failover", "freeze", "client kill", "script flush", "out of memory",
	"clock rate", "partition", "requests held", "replies held", "replies lost", "all lost", "slow",
	"pipelines split", "reset", "refused", "half closed", "pause", "kill"}

// valid fails if a wanted fault cannot come up.
func (c *Config) valid() error {
	all := slices.Concat(slices.Collect(maps.Values(c.System.kinds()))...)
	for _, name := range c.Faults {
		if !slices.ContainsFunc(all,
			func(f fault) bool { return f.name == name && (f.only == nil || f.only(c)) }) {
			return fmt.Errorf("the fault %q can not come up here", name)
		}
	}
	return nil
}

// complete fills in what is not set.
func (c *Config) complete() {
	set := func(field *time.Duration, to time.Duration) {
		if *field == 0 {
			*field = to
		}
	}
	if c.System != Redis {
		set(&c.TTL, systemTTL)
		set(&c.Linger, lingers[c.System])
	}
	set(&c.TTL, time.Second)
	set(&c.Wait, 6*c.TTL)
	set(&c.Patience, 3*time.Minute)
	set(&c.Work, c.TTL/20)
	for field, to := range map[*int]int{&c.Clients: 4, &c.Workers: 6, &c.Keys: 8} {
		if *field == 0 {
			*field = to
		}
	}
}
