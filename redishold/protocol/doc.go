// Package protocol is how Holdfast keeps locks in Redis: the keys, the scripts and a [Backend] that speaks them
// over any client library.
//
// Applications use package redishold, or goredishold, which bring a library. This package is for those who
// bring another: they implement [Transport] and [Conn].
//
// # What is stored
//
// A lock is what every Redlock client writes: a string at exactly the lock's key, whose value is the owner
// value, with the lease as its TTL. Everything else is in the same hash slot, whatever the lock's name is
// made of, because its name begins with a tag of that slot (see [KeysOf]):
//
//   - The fence, holdfast:f:{tag}, is the largest token granted in the slot. It never expires. All keys of
//     the slot share it, so at most 16,384 of them are ever left behind.
//   - The queue, holdfast:q:{tag}:name, and the waiters, holdfast:w:{tag}:name, exist while somebody waits.
//   - The end of an acquisition, holdfast:d:{tag}:owner, exists for a minute after the release of one of which a
//     request may still be on its way, over a [Transport] that is not ordered.
//   - Notices travel on holdfast:n:id, in a cluster on holdfast:n:{tag}:id, where id is the Backend's own.
//
// # Clocks
//
// Leases and presences run on the server's clock, relative to when a script runs; no clock of a client
// reaches the server except inside tokens, where a wrong one makes tokens that look wrong and
// rise all the same.
package protocol
