package etcdfence

import clientv3 "go.etcd.io/etcd/client/v3"

// Held is the condition that the lock is still held whose key in etcd is lockKey, and was created
// in the given revision. With it in the If of a transaction, check and write are one step:
//
//	answer, err := client.Txn(ctx).
//		If(etcdfence.Held(key, revision)).
//		Then(clientv3.OpPut("account/7", "90")).
//		Commit()
//	if err == nil && !answer.Succeeded { // the lock is lost: nothing was written
//
// It fits locks that are a key as long as they are held, and get a new one the next time: those of
// etcd's package concurrency, and of etcdctl lock and elect. Their revision is the CreateRevision
// of a Get of the key, or Election.Rev; Mutex.Header and ETCD_LOCK_REV are others. A Mutex gives
// the same condition by its IsOwner, to the process that has it. The key of a Mutex that still
// waits is there as well: ask only for one whose Lock has returned nil.
//
// The condition never holds for a revision that is 0 or less. In etcd 0 stands for a key that is
// not there, so a lock that is lost would pass for held.
func Held(lockKey string, revision int64) clientv3.Cmp {
	if revision <= 0 {
		revision = -1
	}
	return clientv3.Compare(clientv3.CreateRevision(lockKey), "=", revision)
}
