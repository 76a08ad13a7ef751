// Package withredisson keeps locks as Redisson's RLock does, so that services in Java and services
// in Go exclude each other over one Redis or Valkey.
//
//	backend, err := withredisson.New(client) // a *redis.Client of go-redis
//	locker, err := holdfast.New(backend)
//	lock, err := locker.Acquire(ctx, "invoice/42") // redisson.getLock("invoice/42") in Java
//
// It is for fleets that have Redisson's locks already. A fleet of Go services alone is better off
// with package redishold, whose locks have a queue and are handed over.
//
// # What is stored
//
// A lock is an RLock: a hash at exactly the lock's key. Its one field is the holder: an owner
// value, where Redisson has the id of a client and a thread. The value of the field is 1, because
// reentrancy is counted in the process. The TTL of the key is the lease. A release deletes the key
// and publishes 0 on redisson_lock__channel:{key}. That wakes waiters of Redisson, and waiters here
// listen on the same channel. If a key has braces, the channel has them as they are.
//
// Two keys of Holdfast are beside the lock, the same as those of package redishold: the largest
// token granted, and which requests of an owner value are ignored if they still arrive. So tokens
// rise even if a fleet moves from redishold to this package. Stop all processes for such a move:
// here a lock of redishold counts as held, but redishold fails on an RLock, which is no string.
//
// # What is promised
//
// Exclusion, renewal, loss told in time, reentrancy by context, sets of keys and permits are those
// of package holdfast, on one server or on a primary behind Sentinels. Holders in Java and in Go
// exclude each other.
//
// # What Redisson does not have
//
//   - Tokens. A holder of Redisson has none. The tokens of holders in Go rise, but a store that
//     checks them cannot refuse a late holder in Java. RFencedLock counts in a key of its own.
//   - A queue. After a release the first to ask gets the lock, on both sides. A waiter here asks
//     when it hears of a release, and once a second. At the end of a run of turns (see
//     [holdfast.WithCohort]) the key is released if anybody else listens on the channel, so a busy
//     process lets others in.
//   - Shared locks. An RReadWriteLock at the same key counts as held, in either of its modes.
//     [holdfast.WithShared] is refused.
//   - Fair locks. Nothing here looks at the queue of an RFairLock. An RSpinLock is an RLock that
//     polls, so both exclude each other. An RMultiLock is several RLocks.
//
// Redisson's watchdog renews a lock for as long as its process lives, and tells nobody of a loss.
//
// # Cluster
//
// New takes no *redis.ClusterClient. In a cluster, Redisson publishes on sharded channels or on
// others, depending on what it finds out about the servers.
//
// # Tested against
//
// The tests use the published layout, not Redisson itself: it needs libraries (reactor-core, rxjava
// 3, kryo 5) that Debian does not have.
//
// # Access
//
// A user needs what package goredishold needs, the commands TYPE, HSET, HEXISTS, HKEYS and PUBSUB,
// and the channels redisson_lock__channel:*.
package withredisson
