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

The laboratory of [torture.md](torture.md), with the same client processes, network, checks and history, and locks on real servers of other systems:
a cluster of three of etcd, a PostgreSQL with a standby, also behind a PgBouncer in transaction mode, and an ensemble of three of ZooKeeper.

`

const coordinatorsScope = `## What is drawn

Clients draw what they do as on Redis, see [torture.md](torture.md), with locks of two seconds. In all modes: processes that lock are paused and killed; the network between them and the servers
holds, loses, delays, resets, refuses and half closes what travels on it; servers are frozen, killed and restarted, one after the other too, and run for a moment now and then only. In etcd and ZooKeeper the
leader is killed on purpose, and in ZooKeeper frozen. In etcd it is cut off from the others and told to give up, the way between members is slow, and what can be watched is compacted. In PostgreSQL the standby
takes over from a primary that was killed, that stands still and goes on later, or that it can not hear, and the former primary begins anew as standby; replication is held; an operator cancels statements and
ends connections. In ZooKeeper clients are cut off for longer than their session.

Where assumptions are broken: an etcd ends leases of others when a leader that stood still goes on, versions before 3.4.31 and 3.5.13, as Debian 12 has them, within seconds, and 3.6.16 now and then; so in the mode where every promise has to hold no leader stands still. (The first run of all let one do so, and saw two holders within 30 seconds.) And a
standby of PostgreSQL takes over that did not have to confirm what the primary answered, with synchronous_commit off.

## What it does not show

All processes are on one machine. Servers do not wait for their disks, and no power fails: the crash of a process loses nothing by that. The members of the ensemble of ZooKeeper, and primary and
PgBouncer, are not cut off from each other one by one. There are no other versions than those named above. No member is added or removed.

`

// writeCoordinators writes the page.
func writeCoordinators(dir string, env Environment, runs []*Run) error {
	var b bytes.Buffer
	b.WriteString(coordinatorsHead)
	summary(&b, env, env.on(env.Servers), runs)
	if stores := sumUp(runs); len(stores) > 0 {
		b.WriteString(`## Writes that came too late

With the locks on etcd, holders are stopped past their lease between a read and a write, as [torture-guards.md](torture-guards.md) has it for locks on Redis. etcd keeps
a lease for as long as its client renews it; that client was stopped, too. What is lost without a guard is what Jepsen saw of updates under etcd's own locks.

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
