// Package redlock opens a lock backend on N independent Redis or Valkey servers: the Redlock
// algorithm, with fencing tokens that rise and a quarantine for servers that restart.
//
//	backend, err := redlock.Open(ctx, "redlock://h1:6379,h2:6379,h3:6379,h4:6379,h5:6379")
//	locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"))
//
// It joins two packages: redishold talks to each server, quorum makes one backend of them. A lock
// is the published layout on every server, so other Redlock libraries over the same servers exclude
// Holdfast and are excluded by it.
//
// # Which servers
//
// Independent masters: no replication between them, no Cluster, each on a machine of its own. Five
// servers tolerate the failure of two, and three that of one. An even number is allowed but gains
// nothing: four tolerate one failure, as three do, and one more server can fail. Any minority may
// be down, also while Open runs.
//
// # Restarts
//
// A server that restarts without its data has forgotten the leases that it granted, and could grant
// a key that is still held. So after a restart it takes no part for the time of restart-guard.
// Locks go on with the other servers, and renewals set them again on this server when it is back.
// The guard is also the largest TTL allowed. A set of servers that were all just started grants
// nothing before the guard is over; the error says for how long.
//
// Only durable=always in the URL exempts servers. With it the operator says that no server ever
// lost anything it had answered: each has always run with appendonly yes, appendfsync always and
// no-appendfsync-on-rewrite no, which costs a write to disk for every change. A server's settings
// cannot say that, because they tell nothing about the run before. But a server whose settings
// contradict it is refused. Before you change a server's persistence, delete its data or put back
// an older copy, take the parameter out of the URL of every client. It may come back when the guard
// is over. With appendfsync everysec an orderly shutdown loses nothing, but a power failure can
// lose the last second: such a server sits the guard out.
//
// In INFO a server says which run it is in and since when. Its uptime follows its wall clock: if
// that is set forward while the server is down, the server seems to be up for longer. So the
// quarantine also counts from when a client first asks the server in its run.
//
// Without a restart a server loses its data when somebody empties it (FLUSHALL, FLUSHDB, SWAPDB) or
// when it is a replica for a while. That counts as a restart. With its data a server stores the
// time since when it has had them (the key holdfast:m:{holdfast:s}). It is asked for the key with
// every claim, and takes no part before it has had its data for the guard. A server also tells
// connected clients whose user may run client|tracking that it has lost its data. Redis does not
// say which database was emptied, so FLUSHDB of another database starts a quarantine too. This has
// a price: a server that no client has asked before in its run is in quarantine for the guard,
// however long it has run, because it looks like a server that was emptied or was a replica long
// ago. The error says so, and waiting acquisitions wait for it. Servers with durable=always are not
// asked for the key, because their operator has said that nobody empties them. Connected clients
// that may run client|tracking still notice it, except SWAPDB.
//
// Nothing notices when older data of the same run replace newer ones, with an older holdfast:m key
// among them: SWAPDB there and, after the guard, back again, with nobody connected; two databases
// swapped that are both used for locks; DEBUG RELOAD of an older file; a key that was put back by
// hand. Do none of that on servers in use, or stop all clients for the guard first. Nothing notices
// either when single locks are deleted or evicted.
//
// # Another set of servers
//
// Each server remembers, under the key holdfast:s, which servers belong together, how many they
// are, and the guard. It refuses clients with another configuration, with an error that names both
// sets. The addresses in the URL, in any order, say which servers they are. Clients that have to
// write them differently give their set one name, by the parameter set.
//
// To change any of that, servers included: write the new URL, call [quorum.Quorum.Adopt] on a
// backend that is opened with it, or holdfast adopt --on URL, and give it to all clients. This may
// be done while clients of the old URL work; the documentation of Adopt says what to watch. From
// then on servers refuse clients with the old URL, and they grant locks again when the old guard is
// over. If two adoptions run at once, both may fail, and nothing else is harmed. An adoption that
// broke off goes on when it is called again. To undo it, adopt the former servers; that is refused
// if it broke off after its wait and too few of them say that they are of the new set.
//
// To replace a dead server, change its address and do the same (with a name, change that as well).
// If the new server has the address of the dead one, and starts empty, nothing has to be done: it
// counts as that server, after a restart. With durable=always or restart-guard=0s it takes part at
// once, and could grant what the dead one has granted: start it when that one has been dead for the
// longest TTL. The dead one must never come back, under any address: to a client that still reaches
// it there, it is a server of the set. The same goes for a running server that is left out: with it
// and one that loses its data, even while it is moved, clients of the old set have a majority of
// three again. Shut it down first.
//
// Until there is a new server, the dead one's address must lead to no other server of the set, by
// its name in DNS or by a proxy. Open fails with quorum.ErrSameServer then. But a client that has
// reached the dead one does not notice it: the other server has two votes there.
//
// # Caveats
//
// Redlock rests on time. Nothing protects from the following, and a test reproduces each.
//
// A server's leases run by its wall clock. A server whose clock is set forward ends its leases
// early. If the servers that could object cannot be reached, a lock is then granted twice. A server
// whose clock is set back keeps its leases for longer. Have clocks slewed, never stepped. With
// restart-guard=0s a restart does the same. Tokens do not depend on clocks while a majority of
// servers keeps its data: have the protected store check them.
//
// When the network cuts a holder off from the majority, nobody gets its lock for up to its TTL. A
// network that does so again and again can keep everybody out for ever.
//
// Two owners that ask for a free lock at the same moment may split the servers, so that neither
// gets the lock. Both give back what they have, and ask again after a random time. Waiters in the
// queue are served in order.
package redlock
