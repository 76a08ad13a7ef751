// Package etcdhold is a backend on etcd, version 3.4 or newer. Its locks and shared locks survive
// the loss of servers, and depend on no wall clock.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
//	backend, err := etcdhold.New(client)
//	defer backend.Close()
//	locker, err := holdfast.New(backend)
//
// or by an address: etcdhold.Open(ctx, "etcd://localhost:2379").
//
// # What is in etcd
//
// Under the keyspace, "holdfast/" unless it is set:
//
//   - lock/<key>, a zero byte, "h" and the owner value: a holder. The value is readable: its first
//     token, how many, its TTL, and whether it shares the key. A zero byte in a key is written as
//     00 ff.
//   - the same with "w": a waiter.
//   - the same with "x": for a moment, a claim that has ended while a request for it may still
//     arrive.
//   - token/000 to token/3ff: the largest tokens granted, by a hash of the key. They stay.
//
// All but the last are attached to leases of etcd, and end with them. A user of etcd needs the
// permission to read and to write all keys of the keyspace, and no other; [Backend.Check] tries it.
//
// # Leases
//
// Claims of one Backend with the same TTL share a lease of etcd, which is a third longer than the
// TTL, at least by a second, in whole seconds. So a renewal is one keep-alive for all of them, and
// one transaction that only reads for each 128, which says whether their keys are still there. A
// claim is granted or renewed only if etcd is sure to keep the lease for the whole TTL, counted
// from before the request.
//
// The process that made a claim ends it on time if nobody renews it, although other claims keep its
// lease alive. If that process is killed, the lease ends the claim: after a third more than the
// TTL, at least a second more, and half a second in which etcd notices. After a change of leader
// etcd counts leases from their beginning again. A process whose rights were taken away may be able
// to keep leases alive but not to delete keys. Then a claim lasts as long as others with its TTL.
//
// A TTL is [MinTTL] at least. etcd counts in whole seconds. It makes a lease at least one and a
// half times its election timeout long.
//
// # Order
//
// A free key is taken by one transaction. Waiters are served in the order in which they came to
// etcd, or by ticket. A release is one transaction if nobody waits. Otherwise, or if the claim has
// waited itself, it reads the queue first, and a second transaction hands the key over, under the
// waiter's own lease. The waiter learns of it by a watch.
//
// Calls of one Backend for one key take effect one after the other. If an answer is missing, the
// request may still arrive. Then the lease gets no more claims, a release leaves a tombstone under
// it that the request finds, and the lease is revoked when its last claim has moved to another one.
// A release that arrives late changes nothing if its claim was asked for again.
//
// # Limits
//
// etcd before 3.4.31 and 3.5.13 has an error by which a member that was the leader may end leases
// that were kept alive. Then a claim may be lost before its time. [Backend.Check] warns of it.
// Newer ones look whether they lead before they end a lease, but, it seems, not in the moment in
// which a process goes on that stood still: on 3.6.16 a test under faults saw two holders of a key
// for 46 milliseconds.
// Whatever is written under a lock should be guarded by its token: see package fence.
//
// A server's --max-txn-ops must be 128 or more, which is etcd's default. The Backend can be a node
// of package quorum, which says what such a node lacks, but etcd has a quorum of its own.
//
// The Backend does not tell what remains of a lease: Result.ExpiresIn and Party.ExpiresIn are 0.
package etcdhold
