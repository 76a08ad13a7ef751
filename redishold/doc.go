// Package redishold keeps locks in Redis or Valkey: a lone server, a primary behind Sentinels, or a Cluster.
//
//	backend, err := redishold.Open(ctx, "redis://localhost:6379")
//	locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"))
//
// A lock is a plain string key with a TTL, as every Redlock client writes it, so other libraries exclude
// Holdfast and are excluded by it. What is stored besides is described in package protocol. Redis 6.2 or
// later is needed.
//
// # Caveats
//
// Replication is asynchronous. When a primary fails before a replica has heard of a lock and that replica
// takes over, the lock is forgotten and can be granted twice (R4): behind Sentinels and in a Cluster the lock
// is for efficiency, unless the fencing token is checked where it matters. The wait parameter of the URL
// narrows the window and does not close it. The fence may be forgotten in the same way; tokens still rise
// then, as far as the clocks of clients agree.
//
// A server that loses its memory in a restart forgets its locks; see driver.Guarded for a quarantine. A
// server with appendonly yes keeps them through an orderly restart (R30), and with appendfsync everysec it
// can lose the last second's in a power failure (R31). With an eviction policy other than noeviction a server
// that runs out of memory may forget locks, and with one for all keys the fence as well.
//
// While a slot of a Cluster is being moved, its locks can be renewed, but calls to acquire and to release one
// may fail with ErrUnavailable until it has arrived.
//
// # Access
//
// The least that an ACL user needs, with the prefix lock: for keys:
//
//	ACL SETUSER locks on >secret ~lock:* ~holdfast:* &holdfast:*
//		+get +set +del +exists +pexpire +pttl +time +eval +evalsha +script|load
//		+zadd +zscore +zrem +zrangebyscore +zcount +zrevrank +hset +hget +hdel
//		+publish +subscribe +info +ping
//
// On a Cluster add +spublish +ssubscribe +sunsubscribe +cluster|slots +asking; with a database other than 0,
// +select; with the wait parameter, +wait; to list locks, +scan. Three more commands are used where they are
// allowed: +client|id and +client|kill make sure that a broken connection carries nothing any more before the
// next one is used, and with +config|get a server that can not forget is told from one that can.
package redishold
