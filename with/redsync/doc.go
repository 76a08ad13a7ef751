// Package redsync has the public API of go-redsync/redsync v4, over Holdfast. A program moves by
// its imports alone:
//
//	sed -i s,github.com/go-redsync/redsync/v4,github.com/holdfast-go/holdfast/with/redsync, *.go
//
// So redsync/v4 becomes this package, and redsync/v4/redis/goredis/v9, the pool over a go-redis
// client, becomes redsync/redis/goredis/v9.
//
//	client := goredislib.NewClient(&goredislib.Options{Addr: "localhost:6379"})
//	rs := redsync.New(goredis.NewPool(client))
//	mutex := rs.NewMutex("my-global-mutex")
//	if err := mutex.Lock(); err != nil {
//
// # Moving a fleet
//
// A mutex of the same name on the same servers is the same key in both libraries, without a prefix:
// a string with a TTL that exists while somebody has the lock. So processes that have moved and
// those that have not exclude each other, over one server and over several, and a fleet can move
// one process after the other, and back. The tests of that are in redishold/interop.
//
// # What is new
//
// [Mutex.Held] gives the lock as Holdfast knows it: its fencing token, for the stores that it
// protects; a channel and a context that end when the lock is lost; its deadline. [WithRenewal] has
// the lock renewed until it is unlocked. When no process uses the old library any more, [WithQueue]
// has waiters served at once and in the order in which they came.
//
// # What is different, and why
//
//   - Pools. There are none for go-redis v6 to v8, redigo, rueidis and valkey-go. Package redis
//     beside this one makes a Pool of any backend of Holdfast: for example of redishold.New over a
//     client of rueidis, or of redishold.Open, which needs no client. A Pool returns a backend, not
//     connections, so a Pool of your own has to be written anew.
//   - Servers. Redis 6.2 or Valkey is needed, for more commands than before (see package redishold,
//     Access): a fencing token is a counter, which is stored beside the locks.
//   - The value in Redis is not [Mutex.Value], which is its last part: Holdfast adds host, process
//     and a random part of its own. [WithValue] finds the lock by either, those of the old library
//     too. A value has at most 128 bytes of printable ASCII. A process ends the locks that it has
//     acquired when their expiry is over by its own clock, so while it lives another one cannot
//     extend them beyond that. Nor does it shorten them: with an expiry that is shorter than what
//     remains of the lock, Extend by a value changes nothing and succeeds. But it looks first and
//     renews then. If the holder extends the lock in between, or some of several servers do not
//     answer, the lease may become shorter than the holder counts on. So do not extend a lock by
//     its value with a shorter expiry than its holder's while the holder extends it, too.
//   - Time. A lock is valid for the expiry less drift and two milliseconds, from before the
//     request. When that is over it counts as lost: [Mutex.Unlock] and [Mutex.Extend] fail, where
//     the old library succeeds for as long as Redis has the key. The key is still removed.
//     The expiry is at least 10 ms, and the drift factor less than 0.5.
//   - Errors. Those of Holdfast and of the context are wrapped: [ErrFailed] that came of a context
//     wraps its cause, so compare with errors.Is. An argument that Holdfast refuses is
//     holdfast.ErrInvalid at once, without further tries.
//   - After [Mutex.Unlock] of a lock that is lost, errors.Is finds [ErrLockAlreadyExpired], also
//     when another has it by now. The old library gives [ErrTaken] then.
//   - Each Lock of a [Mutex] needs an Unlock, also when the lock was lost and the Mutex was locked
//     again since. The first Unlock is then for the lost lock, and fails, so that a goroutine which
//     is late does not release the lock of another one. What is never unlocked takes memory. An
//     Unlock that fails is not to be repeated: the next one is for another Lock. Extend is about
//     the lock that is held, whichever goroutine has it.
//   - With [WithSetNXOnExtend], Extend acquires the lock anew only after a loss: not after Unlock,
//     nor for a lock that [Redsync.Close] has ended, nor by the value of [WithValue] if nobody has
//     the lock.
//   - With several pools a majority decides. So Nodes of [ErrTaken] is empty, there is no
//     [ErrNodeTaken], and what servers say is in an error that wraps [ErrFailed], with their names.
//   - [WithFailFast] and [WithShufflePools] do nothing. All servers are asked at once, and nobody
//     waits for those that a majority does not need.
//   - Unlock and tries that failed clean up in the background, also when their context has ended:
//     the key does not wait for its expiry. Only Unlock by the value of [WithValue] is tried once.
//   - [Mutex.Lock] with a context of Held().Context of the same key is nested, and succeeds at
//     once (see Reentrancy in package holdfast), if both locks are of the same Redsync and have the
//     same drift factor and, with several pools, the same time for a server (see
//     [WithTimeoutFactor]). A nested lock has the time of the outer one: its own expiry and
//     [WithRenewal] do nothing, and its value is not in Redis.
//   - A [Mutex] is safe for concurrent use, so one goroutine may extend it while another works.
//
// As before, there is no quarantine for servers that restart. A server that loses its data in a
// restart may grant a lock that is held. With several pools so may a majority that contains such a
// server. Package redishold/redlock has a quarantine. Its clients and those of this package cannot
// use the same servers: they do not agree on the quarantine, and are refused.
package redsync
