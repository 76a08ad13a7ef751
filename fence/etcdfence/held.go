package etcdfence

import clientv3 "go.etcd.io/etcd/client/v3"

// Held is the condition that a lock is still held. lockKey is the lock's key in etcd, and revision
// the one in which the key was created. With Held in the If of a transaction, check and write are
// one step:
//
//	answer, err := client.Txn(ctx).
//		If(etcdfence.Held(key, revision)).
//		Then(clientv3.OpPut("account/7", "90")).
//		Commit()
//	if err == nil && !answer.Succeeded { // the lock is lost: nothing was written
//
// It fits locks that have a key while they are held, and a new key the next time: those of etcd's
// package concurrency, of etcdctl lock, and of etcdctl elect. Their revision is the CreateRevision
// of a Get of the key, or Election.Rev. Mutex.Header and ETCD_LOCK_REV have other revisions. To the
// process that holds a Mutex, its IsOwner gives the same condition. A Mutex that still waits has a
// key as well, so use Held only after its Lock has returned nil.
//
// The condition never holds for a revision that is 0 or less. In etcd 0 stands for a key that is
// not there, so a lost lock would pass as held.
func Held(lockKey string, revision int64) clientv3.Cmp {
	if revision <= 0 {
		revision = -1
	}
	return clientv3.Compare(clientv3.CreateRevision(lockKey), "=", revision)
}
