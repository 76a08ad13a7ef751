//go:build unix

package report

import (
	"bytes"
	"fmt"
	"path/filepath"
)

// Coordinators is the name of the page on other systems than Redis.
const Coordinators = "torture-coordinators.md"

const coordinatorsHead = `# What the fault laboratory saw of etcd, PostgreSQL and ZooKeeper

This is the laboratory of [torture.md](torture.md), with the same client processes, network, checks
and history. The locks are on real servers of other systems: a cluster of three of etcd; a
PostgreSQL with a standby, also behind a PgBouncer in transaction mode; and an ensemble of three of
ZooKeeper.

`

const coordinatorsScope = `## What is drawn

Clients draw what they do as on Redis (see [torture.md](torture.md)), with locks of two seconds. In
all modes:

- Processes that lock are paused and killed.
- The network between them and the servers holds, loses, delays, resets, refuses and half closes
  connections.
- Servers are frozen, killed and restarted, also one after the other, and run only for a moment now
  and then.

Each system has faults of its own:

- etcd: the leader is killed, cut off from the others, or told to give up. The way between members
  is slow. What can be watched is compacted.
- PostgreSQL: the standby takes over from a primary that was killed, that stands still and goes on
  later, or that it cannot hear. The former primary begins anew as a standby. Replication is held.
  An operator cancels statements and ends connections.
- ZooKeeper: the leader is killed or frozen. Clients are cut off for longer than their session.

Two modes break assumptions. When a leader of etcd stood still and goes on, it ends leases of
others: in versions before 3.4.31 and 3.5.13, as Debian 12 has them, within seconds, and in 3.6.16
now and then. So where every promise has to hold, no leader stands still. (In the very first run one
did, and two holders were seen within 30 seconds.) In PostgreSQL, with synchronous_commit off, a
standby takes over that did not have to confirm what the primary answered.

## What it does not show

All processes are on one machine. Servers do not wait for their disks, and no power fails. So a
process that crashes loses nothing. The members of the ensemble of ZooKeeper are not cut off from
each other one by one, and neither are primary and PgBouncer. There are no other versions than those
named above. No member is added or removed.

`

// writeCoordinators writes the page.
func writeCoordinators(dir string, env Environment, runs []*Run) error {
	var b bytes.Buffer
	b.WriteString(coordinatorsHead)
	summary(&b, env, env.on(env.Servers), runs)
	if stores := sumUp(runs); len(stores) > 0 {
		b.WriteString(`## Writes that came too late

With the locks on etcd, holders are stopped past their lease between a read and a write, as in
[torture-guards.md](torture-guards.md) with locks on Redis. etcd keeps a lease for as long as its
client renews it, and that client was stopped, too. What is lost without a guard is what Jepsen saw
of updates under etcd's own locks.

`)
		table(&b, stores)
		fmt.Fprintln(&b)
	}
	b.WriteString(coordinatorsScope)
	if err := sections(&b, dir, runs); err != nil {
		return err
	}
	return save(filepath.Join(dir, Coordinators), &b)
}
