// Package redlock opens a lock backend on N independent Redis or Valkey servers: the Redlock algorithm, with
// fencing tokens that rise and a quarantine for servers that restart.
//
//	backend, err := redlock.Open(ctx, "redlock://h1:6379,h2:6379,h3:6379,h4:6379,h5:6379")
//	locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"))
//
// It joins two packages: redishold talks to each server, quorum makes one backend of them. A lock is the published
// layout on every server, so other Redlock libraries over the same servers exclude Holdfast and are excluded by
// it.
//
// # Which servers
//
// Independent masters (R10): no replication between them, no Cluster, each on a machine of its own. Five tolerate the
// failure of two, three that of one. An even number is allowed and buys nothing: four tolerate one failure, as three do,
// and are one more that can fail. Any minority may be down, also while Open runs.
//
// # Restarts
//
// A server that restarts without its data has forgotten whom it granted a lease, and could grant it again (R29). So
// for the time of restart-guard after a restart it takes no part (R32); locks go on with the others, and renewals set
// them again on the server when it is back. The guard is also the largest TTL allowed. A set of servers that were all just
// started grants nothing before the guard is over (R33); the error says for how long.
//
// A server with appendonly yes and appendfsync always can not forget and is exempt; it pays for that with a write to
// disk for every change. Whoever deletes its data, or puts an older copy in its place, has to keep it out for the guard himself: it
// looks like a server that remembers. With appendfsync everysec an orderly shutdown loses nothing (R30), but a power failure can lose the
// last second (R31), and a server does not tell which of the two it was: it sits the guard out.
//
// Which run a server is in, and since when, is what it says itself, in INFO. Its uptime follows its wall clock: one whose
// clock is set forward while it is down, or just after, seems to be up for longer. A connection that has seen the run before
// it allows for that; a client that connects for the first time can not know.
//
// # Caveats
//
// Redlock rests on time. What follows is not promised, and a test reproduces each.
//
// A server's leases run by its wall clock. One whose clock is set forward gives its locks away early, and if the servers that
// could object can not be reached, a lock is granted twice (R39, K1). One whose clock is set back keeps
// them for longer (K5). Have clocks slewed, never stepped. With restart-guard=0s a restart does the same (R29). Tokens do
// not depend on clocks as long as a majority of servers keeps its data: have the store that you protect check them.
//
// When the network parts a holder from the majority, its lock is nobody's for up to its TTL (R27); a network that
// does so over and over can keep everybody out for ever (R28).
//
// Two owners that ask for a free lock in the same moment may split the servers, so that neither gets it. Both give back what
// they have and ask again after a random time; those that wait in the queue are served in order.
package redlock
