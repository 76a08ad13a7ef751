// Package etcdfence lets etcd refuse a holder that was overtaken, in one step and one round trip.
// Package fence says what a guard is.
//
// [Guard] takes the tokens of any lock, wherever that is. The lock may also be a key in the same
// etcd: then [Held] is a condition for transactions of your own, and there is no guard to keep.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
//	guard := etcdfence.Guard{Client: client}
//
//	_, err = guard.Do(ctx, "account/7", lock.Token(), clientv3.OpPut("account/7", "90"))
//	if errors.Is(err, fence.ErrStale) { // somebody else has the lock now: stop
//
// # Where the token is
//
// In a key of its own, Guard.Prefix and the name of the resource, as 16 decimal digits: so the
// order of the texts is the order of the numbers, and etcd compares them. It is without a lease and
// stays for good. Operations of the holder cannot touch it: etcd refuses a transaction that writes
// a key twice, and where it overlooks that, the token is written last. They can delete the tokens
// of other resources: leave the keys under Guard.Prefix alone. A value that is not 16 digits, which
// only others can have left there, refuses every token that it is larger than, in the order of
// bytes, and otherwise counts as none.
//
// A user of etcd needs the permission to read and to write that key.
//
// # Repetitions
//
// An operation is executed at most once. The etcd client sends a transaction that writes again in
// two cases: when etcd has refused to look at it, for one because it has forgotten the login;
// and after an answer of "cancelled" or "deadline exceeded" that comes before the context ends. A
// proxy may give that one for a transaction that was executed, so [Guard.Do] does not let the
// client repeat it.
//
// Where etcd has forgotten a login, 3.4 may refuse the client a new one as well, until the context
// ends. [Guard.Do] then fails with [fence.ErrUnavailable]: use a new client.
//
// # Limits
//
// The token is as durable as etcd: a majority of its members has it on disk. A cluster that is
// restored from a backup has the tokens of then.
package etcdfence
