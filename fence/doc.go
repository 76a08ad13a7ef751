// Package fence is the other half of a lock: it lets a store refuse the holder that was overtaken.
//
// A process can be paused after it looked at its lock: by its garbage collector, its hypervisor, or
// a slow disk. When it goes on, its lease may have ended and somebody else may have the lock, and
// yet it writes. No lock can prevent that. The store can: each acquisition has a [Token] that is
// larger than those before it, every write carries the token of its holder, and the store refuses a
// token that is smaller than the largest it has accepted.
//
//	err := locker.Do(ctx, "account/7", func(ctx context.Context, lock *holdfast.Lock) error {
//		return guard.Do(ctx, "account/7", lock.Token(), func(ctx context.Context) error {
//			return pay(ctx) // not run when a later holder has written
//		})
//	})
//	if errors.Is(err, fence.ErrStale) { // somebody else has the lock now: stop
//
// # The rule
//
// A guard accepts a token that is equal to or larger than the largest that it has accepted for the
// resource, and remembers it. It accepts an equal token because one holder may write often. It
// compares with the token that the store has, in one step with the write. If it looked first and
// wrote later, it could be paused in between.
//
// [Register] keeps the rule in memory and is its definition. File guards a file on one machine.
// Package [github.com/holdfast-go/holdfast/fence/sqlfence] keeps it in SQL databases,
// [github.com/holdfast-go/holdfast/fence/redisfence] in Redis, and package
// [github.com/holdfast-go/holdfast/fence/httpfence] carries tokens to another service. Modules of
// their own need their store's client: github.com/holdfast-go/holdfast/fence/pgxfence keeps it in
// PostgreSQL without database/sql, github.com/holdfast-go/holdfast/fence/etcdfence in etcd, and
// github.com/holdfast-go/holdfast/fence/s3fence in stores of objects that speak the protocol of
// Amazon S3. Package [github.com/holdfast-go/holdfast/fence/fencetest] is the rule as a test suite,
// for guards of your own.
//
// # What a guard does not do
//
// It protects only what is written through it. It does not refuse a program that writes past it,
// except where the store itself asks every writer for a token. Guard a resource under one name,
// with the tokens of one lock: tokens of different keys cannot be compared. If several may hold
// something at once, each in a slot, each slot is a resource, such as "pool/slot-3".
package fence
