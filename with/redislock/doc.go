// Package redislock has the public API of bsm/redislock v0.10, over Holdfast. A program moves by
// its imports alone:
//
//	sed -i s,github.com/bsm/redislock,github.com/holdfast-go/holdfast/with/redislock, *.go
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	lock, err := redislock.New(client).Obtain(ctx, "my-key", 100*time.Millisecond, nil)
//	if err == redislock.ErrNotObtained {
//
// # Moving a fleet
//
// A lock on the same key of the same Redis is the same string with a TTL in both libraries. So
// processes that have moved and those that have not exclude each other, and a fleet can move one
// process after the other, and back. Tests in redishold/interop do that, and run the old library's
// own tests against this package.
//
// # What is new
//
// [Lock.Held] gives the lock as Holdfast knows it: a fencing token for each key, and a channel and
// a context that end when the lock is lost. The old library does not tell of a loss: its users
// refresh from time to time, and work on meanwhile. [NewOver] takes any backend.
//
// # What is different, and why
//
//   - Clients. The client is a *redis.Client or a *redis.ClusterClient. A wrapper of one is refused
//     with holdfast.ErrInvalid: locks need more of it than scripts.
//   - Servers. Redis 6.2 or Valkey is needed, for more commands than before (see package redishold,
//     Access): a fencing token is a counter, which is stored beside the locks.
//   - The value in Redis is not token and metadata, but ends with them: Holdfast adds host, process
//     and a random part of its own. If both together have more than 128 bytes or are not printable
//     ASCII, only the token is there. [Lock.Metadata] still returns the metadata. A Token must have
//     at most 128 bytes of printable ASCII.
//   - Token. With the same Token this process obtains its own lock again, as before, for the same
//     keys and through the same go-redis client, or the same Client of [NewOver]: such calls take
//     turns. Through another client, or in another process, it does not: it would have a lock that
//     somebody else has as well, with one fencing token for both. After a crash it waits for the
//     TTL at most. The whole Token counts. With the old library worker-1 takes over the lock of
//     worker-10, because that Token begins like its own.
//   - Time. A lock is valid for its TTL less one percent and two milliseconds, from before the
//     request. When that is over the lock counts as lost, and Refresh and Release fail. The old
//     library succeeds for as long as Redis has the key. Less than 10 ms count as 10 ms. Obtain
//     refuses more than 366 days with holdfast.ErrInvalid; Refresh takes any TTL.
//   - [Lock.Refresh] with another TTL than the first: the keys in Redis keep the TTL with which
//     they were obtained, and this process renews them, or releases them, so that the lock ends
//     when it should. If the process is killed, or does not reach Redis for as long, they end by
//     their first TTL.
//   - [Lock.TTL] makes no request. The next Refresh or Release notices a key that was deleted.
//   - Errors. [ErrNotObtained] and [ErrLockNotHeld] are the same values, to be compared with == as
//     before, so they do not say who has the lock. Others are Holdfast's.
//   - Several keys may be in different slots of a Cluster. They are obtained one after the other if
//     they have several servers, all or none. Release releases those that are not lost; the old
//     library releases none then.
//   - A try, a refresh or a release that failed is cleaned up after in the background: the key does
//     not wait for its TTL.
//   - A context of Held().Context of the same key makes an acquisition nested: it succeeds at once
//     (see Reentrancy in package holdfast). A nested lock ends with the outer one at the latest,
//     whatever its TTL and its Refresh say, and a Refresh of it renews the outer one, too.
//   - For each go-redis client that locks were obtained with there is a holdfast.Locker, until
//     [Client.Close].
package redislock
