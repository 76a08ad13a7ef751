// Package etcdfence lets etcd refuse a holder that was overtaken, in one step and one round trip.
// Package fence says what a guard is.
//
// [Guard] takes the tokens of any lock, whatever its backend. If the lock is a key in the same
// etcd, you can do without a guard: [Held] is a condition for your own transactions.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
//	guard := etcdfence.Guard{Client: client}
//
//	_, err = guard.Do(ctx, "account/7", lock.Token(), clientv3.OpPut("account/7", "90"))
//	if errors.Is(err, fence.ErrStale) { // somebody else has the lock now: stop
//
// # Where the token is
//
// The token is in a key of its own, whose name is Guard.Prefix and the name of the resource. It has
// 16 decimal digits, so texts have the order of their numbers, and etcd can compare them. The key
// has no lease and stays for good. Operations of the holder cannot change it: etcd refuses a
// transaction that writes a key twice, and where etcd overlooks that, the token is written last.
// Operations can delete the tokens of other resources, so leave the keys under Guard.Prefix alone.
// A value that is not 16 digits, which only others can have left there, refuses every token that
// comes before it in the order of bytes, and otherwise counts as none.
//
// A user of etcd needs the permission to read and to write that key.
//
// # Repetitions
//
// An operation is executed at most once. The etcd client sends a transaction that writes a second
// time in two cases. In the first, etcd has refused to look at the transaction, for example because
// it has forgotten the login. In the second, the answer is "cancelled" or "deadline exceeded"
// before the context ends. A proxy may give the second answer for a transaction that was executed,
// so [Guard.Do] does not let the client repeat it.
//
// If etcd 3.4 has forgotten a login, it may also refuse the client a new login until the context
// ends. Then [Guard.Do] fails with [fence.ErrUnavailable]: use a new client.
//
// # Limits
//
// The token is as durable as etcd: a majority of its members has it on disk. A cluster that is
// restored from a backup has the tokens of the time of the backup.
package etcdfence
