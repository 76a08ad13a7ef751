// Package zkhold is a backend on ZooKeeper: locks and shared locks that survive the loss of
// servers, without a clock that matters.
//
//	backend, err := zkhold.Open(ctx, "zookeeper://h1,h2,h3")
//	defer backend.Close()
//	locker, err := holdfast.New(backend)
//
// # What is in ZooKeeper
//
// Below the root, /holdfast unless it is set:
//
//   - slots/000 to slots/3ff: the locks, each in one of them by a hash of its key. The data is
//     readable: the holders and waiters of each key, and the largest token granted. Slots stay, and
//     what nobody holds or waits for is not in them.
//   - below a slot an ephemeral node for each holder and each waiter. A party without its node has
//     gone, whatever the data say.
//
// A call reads a slot, plans what it changes, and commits that by one transaction, on the condition
// that nobody has changed the slot since. So what is handed over is never nobody's, tokens rise for
// as long as the slot is there, and parents of keys need no cleaning.
//
// # Leases
//
// A Backend has one session, and its claims live in that. So a TTL is three quarters of the
// session's timeout at most: with the default of 40 seconds, which is the most that a server grants
// unless it is told otherwise, 30 seconds. For longer ones set a longer session, by [WithSession]
// or ?session= in the URL, and the server's maxSessionTimeout. A server is to grant four ticks at
// least.
//
// A claim that nobody renews is ended to the moment by the process that made it. If that process is
// killed, or cut off, its claims end with its session: after its timeout, whatever their TTL, and
// up to a tick more. To make that shorter, set a shorter session.
//
// A claim is granted or renewed only if its session is sure to live for the whole TTL, counted from
// before the request: by a transaction, to which a majority agreed, after other answers in which
// the leader had a part, without a gap. All claims of a Backend are renewed by two requests to the
// leader, one of them a transaction if the last one is too long ago, and one request to the server
// for each, which only reads.
//
// The client gives up a session that it could not reach for its timeout, and makes another one.
// Claims of the former are lost then, and the next renewal says so.
//
// # Order
//
// Waiters are served in the order in which they came, or by ticket. The order of arrival is by the
// waiters' clocks, but a newcomer never comes before a waiter that is already there. A waiter that
// gets the key learns of it by a watch on its own node, so nobody is woken in vain. If a holder
// dies, the first waiter finds out when it asks again, which it does three times in its presence.
//
// Calls of one Backend for one key take effect one after the other. Nothing of a session takes
// effect after a later request of it had its answer, or after its end: so a request whose answer is
// missing is not executed later than that.
//
// # Versions
//
// The tests of this package start ZooKeeper 3.8.0, as Debian 12 has it. They have passed on 3.4.13
// and 3.9.3 as well, in November 2026.
//
// # Limits
//
// [Backend.Close] ends the session, and with it what is held.
//
// A connection on which nothing comes any more is given up after two thirds of the session's
// timeout, as the client has it, and only then another server is tried.
//
// ZooKeeper takes a megabyte for the data of a node. A claim does not queue where the data of a
// slot have half of that, which some two thousand waiters have: it is busy, and has to come back by
// itself. Keys in one slot exclude nobody, but their transactions fail each other now and then, and
// are tried again.
//
// What remains of a lease is not told: Result.ExpiresIn and Party.ExpiresIn are 0. The Backend is
// not made to be a node of package quorum, so it is no driver.Guarder, no driver.Member and no
// driver.Identifier: ZooKeeper has a quorum of its own.
//
// The client knows the scheme digest of ZooKeeper, a user and a password, and no SASL.
//
// Whatever is written under a lock should be guarded by its token: see package fence.
package zkhold
