// Package holdfast is a distributed lock manager. It lets one process at a time work on something
// that many machines share, and it uses the servers they already run.
//
//	locker, err := holdfast.New(backend)
//	err = locker.Do(ctx, "invoice/42", func(ctx context.Context, lock *holdfast.Lock) error {
//		return store.Pay(ctx, invoice, lock.Token())
//	})
//
// # Which package to import
//
// The backend comes from a package of its own. Everything else is the same on all of them.
//
//	you have                                    so import
//	one process, or a test                      holdfast/memhold
//	several processes on one machine            holdfast/filehold
//	one Redis or Valkey, Sentinel or Cluster    holdfast/redishold
//	the same, and a go-redis client already     holdfast/goredishold
//	3 to 9 independent servers (Redlock)        holdfast/redishold/redlock
//	etcd                                        holdfast/etcdhold
//	PostgreSQL                                  holdfast/pghold
//	ZooKeeper                                   holdfast/zkhold
//	several backends of your own                holdfast/quorum
//	a store that must refuse late writers       holdfast/fence, and packages below it
//	many processes of which one leads           holdfast/election
//	gocron, cron, goose, certmagic, others      holdfast/with/gocron and so on
//	a Prometheus that should see all of it      holdfast/promhold
//	OpenTelemetry, for metrics and spans        holdfast/otelhold
//	a system that has no backend yet            holdfast/driver, holdfast/drivertest
//
// All paths begin with github.com/holdfast-go. What needs a client or another library is a module
// of its own, so that nobody else inherits that.
//
// # What is promised
//
//   - Exclusion. At any moment at most one acquisition of a key is valid, or several that share it
//     (see Sharing). This rests on clocks of clients and servers that run at the same rate, within
//     the drift allowance (see [WithDrift]), and on a backend that keeps its data.
//   - Fencing. Every acquisition has a [Token]. It is larger than that of every acquisition that
//     was complete when this one began, unless both share the key. At the backend this rests on no
//     clock. A turn that is handed over in memory, or shared there, does not ask the backend, so it
//     rests on the lease as well: see Fencing below.
//   - No deadlock. A holder or waiter that crashed, or was cut off, costs at most its TTL; on etcd
//     a third more, see package etcdhold, and on ZooKeeper the timeout of its session, see package
//     zkhold.
//   - Loss is told in time. [Lock.Done] is closed, and every context from [Lock.Context] cancelled,
//     no later than the end of the validity: before anybody else can hold the key. This holds with
//     a frozen backend, and as long as the process runs: see Caveats.
//   - Honest errors. Held by another, lost, unavailable, unknown outcome, invalid, cancelled: each
//     is its own value.
//   - Nothing left behind. What was cancelled, failed or timed out leaves no key that blocks others
//     for more than a second and a round trip after the backend answers again. If a request was
//     lost, the time that it had to answer comes on top, five seconds at most.
//
// # Caveats
//
// A lock is for efficiency: it avoids doing the same work twice. For correctness no lock with a
// lease is enough, on any system. A process can be paused after it has checked its lock, or its
// write can be under way for longer than the lease; the write then comes when the lock is somebody
// else's. The protected store has to refuse it, by the Token: send the Token with every write, and
// have the store refuse a token smaller than the largest it has seen. The published pattern is
// [Distributed Locks with Redis]; for the debate about it read [How to do distributed locking] by
// Martin Kleppmann and [Is Redlock safe?] by antirez.
//
// A paused process is told of a loss when it runs again, not before. After its host was suspended
// that may take another 250 ms, as timers stand still meanwhile. The drift allowance does not cover
// the Go scheduler either: where busy goroutines shared one processor, Done was seen to close 23 ms
// after the deadline. [Lock.Err] and [Lock.Deadline] read the clock themselves. A live
// process may have lost its lock: ask the Lock, or use its context.
//
// A network that is cut again and again can keep everybody from acquiring while that goes on.
//
// On systems other than Linux the wall clock tells how long the host was suspended. There, setting
// the clock forward ends leases early.
//
// # Validity
//
// A lease counts from before its first request left. It ends after TTL - (TTL x drift + 2 ms) on
// the local clock. A renewal is sent after a third of the TTL, or a little earlier together with
// others, and counts from its own start. Its answer counts only if it comes before the old
// deadline. A renewal that fails is not yet a loss. It is tried again until that deadline, after a
// twentieth of the TTL at most.
//
// A lease that the backend's queue hands over is shorter. It lasts for what remains of the waiter's
// presence: the time for which the backend counts a waiter as alive after it last asked. So it is
// renewed early: a sixtieth of the presence after it has begun, or sooner if a third of the
// presence is over by then.
//
// # Waiting
//
// Goroutines of one [Locker] that ask for a key on the same terms (TTL, renewed or not, shared or
// not) wait in memory, in the order in which they asked. They hand the key to each other without a
// round trip, and each has its own Token. One of them waits in the queue of the backend. With
// [WithoutRenewal] they keep that order, but each turn asks the backend, for a full lease.
// Goroutines that ask on other terms wait in the queue of the backend, as another process does.
//
// Turns handed over in memory are a run. [WithCohort] bounds it, so that other processes get their
// turn: at its end the backend is asked whether one waits. If the key came out of the backend's
// queue, it goes back there unasked, as others mostly wait too. No turn of a run begins later than
// span after the first, but the last one may last as long as its holder likes. So the first of the
// other processes waits for the span and one hold.
//
// With WithCohort(1, 0) there are no runs: every goroutine waits in the queue of the backend by
// itself. That is not fairer to a process with one goroutine: it waits behind every one of a
// process with many, in one measurement for 713 ms instead of 109 ms.
//
// # Sharing
//
// [WithShared] asks for a key together with others that ask so: any number of readers, or one
// writer. The backend must be able to share keys (driver.Sharer): all of this repository can, and a
// quorum can if all its nodes can. Readers and writers wait in one queue there, so neither starves
// the other: a reader does not go ahead of a writer that waits. [Lock.Downgrade] makes a writer a
// reader, with nobody in between. The other way round does not exist: two readers that both wait to
// become the writer would wait for each other.
//
// Readers of one [Locker] on the same terms share one lease and its Token, however many they are.
// The first asks the backend. Those that ask meanwhile are let in with it, and those that come
// later join in memory; each has an end of its own. The last one to leave releases the lease.
//
// [WithCohort] bounds this too. Readers join for the span, counted from the first; for half of it
// if the first had to wait at the backend. Who comes later, or finds less than a third of the lease
// left, asks the backend whether a writer waits. If none does, that renews the lease, and the next
// span begins. If one does, or there is no answer, the readers that come from then on have a claim
// of their own, which waits behind the writer. So a writer that waits has the key after the span,
// the question and the longest hold of those inside. With [WithoutRenewal], and with WithCohort(1,
// 0), each reader has a lease of its own.
//
// A lease that is lost ends all readers that rest on it. The maximum hold ends one reader alone.
//
// A reader's Token is for reads that a store can refuse, and for whatever the reader writes
// elsewhere. Readers may have the same one. A reader's is larger than that of each writer that
// was complete when the reader began, and smaller than that of each writer that begins after it. So
// a reader that sends its token with a read lets the store refuse it if a writer has overtaken it.
// Two readers' tokens say nothing about each other: the smaller one may be the later. So a guard
// that remembers a reader's token would refuse other readers wrongly: only a writer's counts.
//
// # Semaphores
//
// [WithPermits](n) makes a key a semaphore: at most n acquisitions hold it at a time, in all
// processes together. Each has a permit, which is a numbered slot ([Lock.Slot]) and a lock in all
// else: it has a token, a deadline and a loss of its own, is renewed and released. Each slot is an
// exclusive key at the backend. So the limit holds on every backend, and rests on what exclusion
// rests on. Tokens rise for each slot: a store that refuses late writers needs a token for each
// slot, and to be sent both. The backend shows the slots as keys that end with "@permit/" and a
// number, and two more while somebody waits, which end with "@permit/gate" and the number of
// permits, and "@permit/scout". No other key may end so.
//
// A permit that is free costs one round trip, or a second one if the slot that was tried first is
// taken: Acquire asks for three more then, together, and waits if these are taken as well.
// [Locker.TryAcquire] asks for more and more slots together until all were tried. It may
// miss a slot that comes free after it was tried, and one that another call has asked for together
// with others and gives back. So of two calls at the same time that want the last permits, one may
// fail though there are two, and both though there is one.
//
// Whoever waits gets the first permit that comes free, whichever it is. Goroutines of one Locker on
// the same terms wait in memory, in the order in which they asked, and hand permits to each other
// without a round trip, in runs that [WithCohort] bounds. While they wait, one goroutine of the
// Locker, the scout, waits at the backend for all slots that others have. A Locker that has no
// permit sends it at once, and another when its first waiter has waited for the span of WithCohort.
// So a permit that is free while somebody waits is taken after the span and a few round trips at
// the latest.
//
// With the backend's queue one scout at a time waits for slots, in the order in which they came to
// the gate. A scout's turn ends when all waiters of its Locker have a permit. Otherwise it ends
// some time after the scout got its first permit: the span, or n milliseconds if that is longer. So
// a waiter behind k other Lockers has a permit after k+1 turns. Before the first permit of each
// there may be a wait of one span and the shortest hold of those that have a permit. A turn costs n
// requests, sent together, to enter all queues, and n to leave them: semaphores of hundreds of
// permits are for holds that are not short. If a process dies with the gate, those who wait lose
// five seconds at most, or the TTL if it is shorter, and then the time that the backend's queue
// takes to notice a dead waiter. If the gate gives no answer for as long as that, they go on
// without it, in no order.
//
// Use one n for a semaphore. While processes use several, as during a rollout, at most the largest
// n hold a permit: those with a smaller one use the first slots only. Those with the same n wait
// in one order; the slots' own queues decide between them and others. Where processes with
// different n wait at the same time, the log warns of it (see [WithLogger]); without a wait nobody
// sees it.
//
// A semaphore and a lock of the same key are different things and do not exclude each other, also
// if there is one permit. Acquiring a permit with a context that comes from a permit of the same
// key is nested, as for locks: it gives the same permit, so a function that takes a permit can call
// another one that does. Who wants a second permit acquires it with another context. A permit is
// not shared, is no part of a set ([Locker.AcquireAll]), and has no Downgrade.
//
// # Several keys
//
// [Locker.AcquireAll] acquires several keys, all or none, and gives one handle on them, a
// [LockSet], that ends with the first loss. Keys that are free cost one round trip together. If one
// is taken, the keys are waited for in the order of their bytes, prefix included: a set waits for a
// key only while all that it holds comes before it. So sets that have keys in common cannot wait
// for each other in a circle, in whatever order their callers name the keys, in one process or
// several, on the same terms or on others.
//
// That order binds only what one call acquires. Who acquires more while holding a lock, by Acquire
// or AcquireAll, with a context of the lock or without, may wait in a circle with another who does,
// until a context ends: name all keys in one call, or acquire in the order of their bytes yourself.
// The same holds for keys of two Lockers on different backends, as each has an order of its own.
//
// While a set waits for one key, others wait for those that it has already. Who must not wait that
// long uses [Locker.TryAcquireAll], or keys that are finer.
//
// # Fencing
//
// Tokens rise at the backend whatever clocks do. For turns handed over in memory they were reserved
// with the lease. The key may go away under a lease that is still valid: it is evicted, deleted by
// hand, or the server's clock jumps. Then another process can take a turn and finish it, and a turn
// of this one that begins afterwards has an older token. That can happen until the run's span is
// over, 50 ms by default from when its first turn began. With WithCohort(1, 0) every turn asks, and
// tokens rise even then.
//
// A token is the larger of the backend's counter and the client's clock in microseconds. So tokens
// rise also after the counter was lost. Beyond the one that it needs, a Locker reserves only the
// tokens of the next second, so that they stay near the clocks. Tokens therefore do not fall if the
// clocks of clients agree, and more than a second passes before a lost counter is used again.
//
// # Reentrancy
//
// A function that locks a key can call another one that locks it too: an acquisition with a context
// that comes from [Lock.Context] of the same Locker's lock on the key is nested, and succeeds at
// once. A nested Lock shares token and lease, and ends with the outermost one at the latest,
// however that ends. Go has no thread identity, so the context says who asks: goroutines that share
// the context of one lock count as one holder. See [Lock.Context] for what to do.
//
// Options do not apply to a nested acquisition, but for [WithShared]. Reading is nested in one's
// own read or write. Writing in one's own read would wait for itself, so it is refused at once,
// with ErrInvalid.
//
// [Distributed Locks with Redis]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
// [How to do distributed locking]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
// [Is Redlock safe?]: https://antirez.com/news/101
package holdfast
