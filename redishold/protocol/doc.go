// Package protocol is how Holdfast keeps locks in Redis: the keys, the scripts and a [Backend] that
// speaks them over any client library.
//
// Applications use package redishold, or goredishold, which bring a library. This package is for
// those who bring another: they implement [Transport] and [Conn], or [Library] and [Node].
//
// # What is stored
//
// A lock is what every Redlock client writes: a string at exactly the lock's key, whose value is
// the owner value, with the lease as its TTL. What else belongs to it is in the same hash slot,
// whatever the lock's name is made of, because its name begins with a tag of that slot (see
// [KeysOf]).
//
// A lock that several share is a string at the same key, so other clients find it taken. Its value
// is holdfast:shared, which is no owner value, and its TTL is what is left of the longest lease: it
// follows when a reader comes, renews or goes. Who shares it is in the readers. They count only
// while the lock has that value: once it was deleted, taken by another client or held alone, all
// who shared it have lost it, and the first to share it again removes what is left of them.
//
// All that is stored beside locks:
//
//   - The readers, holdfast:r:{tag}:name, are the owner values of those who share the lock, each
//     with the end of its lease. They exist while somebody shares it, and for a second more if its
//     leases run out.
//   - The fence, holdfast:f:{tag}, is the largest token granted in the slot. It never expires. All
//     keys of the slot share it, so at most 16,384 of them are ever left behind.
//   - The set of nodes that the server belongs to, holdfast:s, is there if it is a node of one, see
//     [driver.Member]. It never expires.
//   - The memory, holdfast:m:{holdfast:s}, is the time since when the server has had its data, by
//     its clock, with the run and the replication history of that time. It begins anew when one of
//     these has changed. A client with a restart guard makes it. It is lost with the data, and
//     never expires.
//   - The queue, holdfast:q:{tag}:name, and the waiters, holdfast:w:{tag}:name, exist while
//     somebody waits. If all who wait have died, Redis removes them within 20 seconds. If the
//     waiters alone were evicted or deleted before, what is made of them anew may stay until
//     somebody waits again.
//   - A client's late requests about an owner value, holdfast:d:{tag}:client:owner: the client, and
//     the number of the last one, to acquire or release, that may still arrive over a [Transport]
//     that is not ordered. The key exists for a minute after the client's next request. Later
//     requests and those of other clients are served.
//   - Notices travel on holdfast:n:id, in a cluster on holdfast:n:{tag}:id, where id is the
//     Backend's own.
//
// # Clocks
//
// Leases and presences run on the server's clock, relative to when a script runs; no client's clock
// reaches the server except inside tokens. A wrong clock makes tokens that look wrong but still
// rise.
package protocol
