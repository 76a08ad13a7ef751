// Package redishold keeps locks in Redis or Valkey: a lone server, a primary behind Sentinels, or a
// Cluster.
//
//	backend, err := redishold.Open(ctx, "redis://localhost:6379")
//	locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"))
//
// A lock is a plain string key with a TTL, as every Redlock client writes it, so other libraries
// exclude Holdfast and are excluded by it, also while the lock is shared. Package protocol
// describes what else is stored. Redishold needs Redis 6.2 or later. The tests have run on Redis
// 6.2.16, 7.0.15, 7.4.1 and the first milestone of 8.0, and on Valkey 8.0.1 and a state of its
// development between 8.0 and 8.1.
//
// # Caveats
//
// Replication is asynchronous. When a primary fails before a replica has heard of a lock and that
// replica takes over, the lock is forgotten and can be granted twice. So behind Sentinels and in a
// Cluster the lock is for efficiency, unless the store checks the fencing token. The wait parameter
// of the URL narrows the window but does not close it. The fence, the counter of tokens, may be
// forgotten in the same way. Then tokens still rise as far as the clocks of clients agree.
//
// A server that loses its memory in a restart forgets its locks; see driver.Guarder for a
// quarantine. Only durable=always in the URL exempts a server from it. With it the operator says
// that the server never lost anything it had answered: it has always run with appendonly yes,
// appendfsync always and no-appendfsync-on-rewrite no, and its data was never replaced by an older
// copy. The Backend asks the server for the three settings on each connection, and refuses a server
// that has others. The settings tell nothing about earlier runs.
//
// A server with appendonly yes keeps its locks through an orderly restart. With appendfsync
// everysec it can lose those of the last second in a power failure. With an eviction policy other
// than noeviction a server that runs out of memory may forget locks, and with one for all keys the
// fence as well.
//
// A waiter counts as present for three seconds after it last asked, or for its TTL if that is
// shorter. It asks about once a second, so a server that does not answer for more than two seconds
// may count its waiters as gone. When they ask again they get their places back, but if the lock is
// free by then, the first to ask gets it. Held locks are not affected.
//
// A server that was the primary and takes no writes any more counts as an outage, because another
// server may take over under its name. A server that was a replica from the start is refused
// permanently.
//
// Between client and server there may be a proxy that passes on bytes, with or without TLS. Such a
// proxy ends the client's connection when the server ends its own. Other proxies know the protocol
// and share connections. They keep the client's connection through a restart of the server, and
// connect again by themselves. That hides the restart for up to ten seconds. The setup of the
// connection, such as login and database, is lost, and the quarantine begins too late: a server
// that has forgotten a lock in the restart may vote for the next claim. With Redlock there are then
// two holders, if the first one's majority needed the forgotten vote. Connect to the servers
// themselves, or through a proxy of the first kind.
//
// While a slot of a Cluster is being moved, its locks can be renewed, but calls to acquire and to
// release one fail with ErrUnavailable until it has arrived, because no server has all of its keys
// (TRYAGAIN). Such a call has done nothing, and it asks again for half a second. If the move takes
// longer than waiters count as present, their places are treated as above. A shared lock is two
// keys, and cannot be renewed between the move of the one and the move of the other. Before the
// first key has moved, the server may end a release halfway, as its script uses a key that it has
// removed. That is ErrUnknown, and whoever waits gets the lock when the slot has arrived.
//
// A string that another program keeps under a lock's key blocks the lock, even an empty string, and
// for ever if it has no TTL. List and Inspect show it, with the first 1,024 bytes of its value. If
// the key has another type than string, acquiring the lock fails permanently.
//
// # Access
//
// The least that an ACL user needs, with the prefix lock: for keys:
//
//	ACL SETUSER locks on >secret ~lock:* ~holdfast:* resetchannels &holdfast:*
//		+get +getrange +set +del +exists +pexpire +pttl +time +eval +evalsha +script|load
//		+zadd +zscore +zrem +zrangebyscore +zcount +zrevrank +hset +hget +hdel
//		+publish +subscribe +info +ping
//
// On a Cluster add +spublish +ssubscribe +sunsubscribe +cluster|slots +asking, of which Redis 6.2
// knows only the last two; with a database other than 0, +select; with the wait parameter, +wait;
// with durable=always, +config|get; to list locks, +scan; for a check, +config|get. Some more
// commands are used if they are allowed. With +hlen and +hgetall, locks of Redisson, which are
// hashes, are listed and shown. With +client|id and +client|kill, a broken connection surely
// carries nothing any more before the next one is used. With +client|tracking a server tells when
// it has lost all its data without a restart. Without that, waiters confirm each notice of a grant
// by asking, and nobody notices when a server with durable=always is emptied.
//
// With [WithReadOnly] a user needs no more than +@read, on a Cluster +cluster|slots and with a
// database other than 0 +select:
//
//	ACL SETUSER looks on >secret ~lock:* ~holdfast:* resetchannels +@read
//
// If +info is allowed, a replica or a Redis that is too old is refused, as without WithReadOnly. If
// +time is not allowed and the server is older than Redis 7.0, the time that remains to waiters and
// sharers is computed with this machine's clock.
package redishold
