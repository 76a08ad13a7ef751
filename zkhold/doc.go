// Package zkhold is a backend on ZooKeeper. Its locks and shared locks survive the loss of servers,
// and do not depend on the servers' wall clocks.
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
//     readable: the holders and waiters of each key, and the largest token granted. Slots stay, but
//     have nothing of keys that nobody holds or waits for.
//   - below a slot: an ephemeral node for each holder and each waiter. A party without its node has
//     gone, whatever the data say.
//
// A call reads a slot, plans what it changes, and commits that in one transaction, on the condition
// that nobody has changed the slot since. So a key that is handed over is never free in between,
// tokens rise for as long as the slot is there, and parents of keys need no cleaning.
//
// # Leases
//
// A Backend has one session, and its claims live in that session. So a TTL is three quarters of the
// session's timeout at most. The default timeout is 40 seconds, the most that a server grants
// unless it is configured otherwise, and so a TTL is 30 seconds at most. For longer TTLs set a
// longer session, by [WithSession] or ?session= in the URL, and the server's maxSessionTimeout. A
// session should be four ticks of the server or longer.
//
// The process that made a claim ends it on time if nobody renews it. If that process is killed or
// cut off, its claims end with its session: after the session's timeout, whatever their TTLs, and
// up to a tick later. To make that shorter, set a shorter session.
//
// A claim is granted or renewed only if its session is sure to live for the whole TTL, counted from
// before the request. What makes sure is a transaction, to which a majority agreed, and before it
// other answers in which the leader had a part, without a gap. Each hundred claims or so of a
// Backend are renewed by one transaction, which looks at their nodes and changes nothing. Each
// server writes some hundred bytes for each claim to its log, and keeps its last 500 transactions
// in memory, which are 40 megabytes at most if all are renewals.
//
// There is a gap if such an answer comes more than a twelfth of the session's timeout after the
// last request that had one was sent. A Backend asks twice in that time. So a silence of the
// servers is a gap if it is longer than a twelfth, and may be one if it is longer than half of
// that, by when the Backend asked last. After a gap it takes a quarter of the timeout at most, and
// a moment, from when the servers answer again, until it is sure how long the session lives. Unless
// set, these times are 3.3, 1.7 and 10 seconds. Until then nothing is granted or renewed that needs
// more than an earlier transaction has proved.
//
// An acquisition that does not wait for as long fails. A Locker's mostly do not: it gives a request
// five seconds at most. The error is ErrUnknown if something was sent, which may take effect, and
// ErrUnavailable if an earlier call for the key still waits, so that nothing was. Either says that
// it is not sure how long the session lives, unless the servers are silent again. If the caller's
// context ends first, a Locker returns the error of the context instead.
//
// If the client could not reach its session for the timeout, it gives the session up and makes
// another one. Then the claims of the former session are lost, and the next renewal says so.
//
// # Order
//
// Waiters are served in the order in which they came, or by ticket. The order of arrival is by the
// waiters' clocks, but a newcomer never comes before a waiter that is already there. A waiter that
// gets the key learns of it from a watch on its own node, so no other waiter is woken. If a holder
// dies, the first waiter finds out when it asks again, which it does three times in its presence.
//
// Calls of one Backend for one key take effect one after the other. No request of a session takes
// effect after a later request of the session had its answer, or after the session has ended. So a
// request whose answer is missing is not executed later than that.
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
// The client gives up a silent connection after two thirds of the session's timeout, and tries
// another server only then.
//
// ZooKeeper takes a megabyte for the data of a node. If the data of a slot have half of that, which
// takes some two thousand waiters, a claim does not queue: it is busy, and has to ask again. Keys
// in one slot do not exclude each other, but now and then one's transaction makes another's fail,
// which is tried again.
//
// The Backend does not tell what remains of a lease: Result.ExpiresIn and Party.ExpiresIn are 0.
// The Backend can be a node of package quorum, which says what such a node lacks, but ZooKeeper has
// a quorum of its own.
//
// The client knows the scheme digest of ZooKeeper, a user and a password, and no SASL.
//
// Whatever is written under a lock should be guarded by its token: see package fence.
package zkhold
