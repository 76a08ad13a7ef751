// Package holdfast is a distributed lock manager. It lets one process at a time work on something
// that many machines share, and it needs no servers but those that you have.
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
//	code that takes a sync.Locker               holdfast/syncview
//	a Prometheus that should see all of it      holdfast/promhold
//	OpenTelemetry, for metrics and spans        holdfast/otelhold
//	a system that has no backend yet            holdfast/driver, holdfast/drivertest
//
// All paths begin with github.com/holdfast-go. A package that needs a client or another library is
// a module of its own, so its dependencies reach only the programs that import it.
//
// # What is promised
//
//   - Exclusion. At any moment at most one acquisition of a key is valid, or several that share the
//     key (see Sharing). This rests on clocks of clients and servers that run at the same rate,
//     within the drift allowance (see [WithDrift]), and on a backend that keeps its data.
//   - Fencing. Every acquisition has a [Token]. It is larger than the Token of every acquisition
//     that was complete when this one began, unless the two share the key. For an acquisition that
//     asks the backend, this rests on no clock. An acquisition that is served in memory does not
//     ask, so it rests on the lease as well: see Fencing below.
//   - No deadlock. A holder or waiter that crashes or is cut off blocks others for at most its TTL.
//     On etcd this is a third longer (see package etcdhold). On ZooKeeper it is the timeout of the
//     session (see package zkhold).
//   - Loss is told in time. [Lock.Done] is closed, and every context from [Lock.Context] cancelled,
//     no later than the end of the validity, and so before anybody else can hold the key. This
//     holds even if the backend is frozen. It does not hold while the process itself is paused (see
//     Caveats), if the backend loses the key: the next renewal tells of that, or if a context of a
//     caller's own kind blocks as it ends (see [Lock.Context]).
//   - Honest errors. There is a separate error value for each of these: the key is held by another,
//     the lock is lost, the backend is unavailable, the outcome is unknown, an argument is invalid,
//     the context ended.
//   - Nothing left behind. An acquisition that was cancelled, failed or timed out may leave a key
//     at the backend. It is gone at the latest a second and a round trip after the backend answers
//     again. If a request was lost, add the time that it had to answer, which is five seconds at
//     most. There are two exceptions. If the backend refuses the release for good (see
//     driver.Permanent), or [Locker.Close] gives it up and says so, the key stays for its TTL. And
//     a release is repeated for the TTL and five seconds. If it is not answered in that time, and a
//     request that was held up on its way arrives only after that, the key is taken for a whole TTL
//     from then.
//
// # Caveats
//
// A lock is for efficiency: it avoids doing the same work twice. A lock with a lease is not enough
// for correctness, on any system. A process can be paused just after it has checked its lock, or
// its write can take longer than the lease. The write then arrives when somebody else holds the
// lock, and only the protected store can refuse it. Send the Token with every write, and have the
// store refuse a token that is smaller than the largest it has seen. The published pattern is
// [Distributed Locks with Redis]; for the debate about it read [How to do distributed locking] by
// Martin Kleppmann and [Is Redlock safe?] by antirez.
//
// A paused process learns of a loss only when it runs again. If its host was suspended, that may
// take another 250 ms, because timers stand still during a suspend. The Go scheduler can delay the
// news too, and the drift allowance does not cover that: with busy goroutines on one processor,
// Done was seen to close 23 ms after the deadline. [Lock.Err] and [Lock.Deadline] read the clock
// themselves. So a process that runs may have lost its lock: ask the Lock, or use its context.
//
// A network that is cut again and again can keep everybody from acquiring a key.
//
// On systems other than Linux, Holdfast measures a suspend by the wall clock. Setting that clock
// forward ends leases early there.
//
// # Validity
//
// A lease is valid from just before its first request is sent, for TTL - (TTL x drift + 2 ms) on
// the local clock. The end of that time is its deadline. A renewal is sent after a third of the
// TTL, or a little earlier together with others. It moves the deadline, counted from when the
// renewal was sent. Its answer must arrive before the old deadline, or the lock is lost. A renewal
// that fails is not a loss: it is tried again until the deadline, each time after a pause of a
// twentieth of the TTL at most.
//
// A lease that the backend's queue hands over is shorter than the TTL. After a waiter has asked,
// the backend counts it as present for some time, its presence, and the lease lasts for what
// remains of the presence. So it is renewed early: a sixtieth of the presence after it has begun,
// or as soon as a third of the presence is over.
//
// # Waiting
//
// The terms of an acquisition are its TTL, whether its lease is renewed, whether it shares the key,
// and of how many permits it is one (see Semaphores). Goroutines of one [Locker] that ask for a key
// on the same terms wait in memory, in the order in which they asked. One of them waits in the
// queue of the backend for all. When they have the key, they hand it to each other without a round
// trip, and each gets a Token of its own. With [WithoutRenewal] they keep that order, but each of
// them asks the backend for a full lease. Goroutines that ask on other terms wait in the queue of
// the backend, as another process does.
//
// Each goroutine that has the key has a turn, and turns that follow each other in memory are a run.
// [WithCohort] bounds a run, so that other processes get their turn. At the end of a run the Locker
// asks the backend whether another process waits. If the key came out of the backend's queue, it
// does not ask: it releases the key, because others probably wait too. The last turn of a run
// begins no later than the span after the first, but it may last as long as its holder likes. So
// the first of the other processes waits for at most the span and one hold.
//
// With WithCohort(1, 0) there are no runs: every goroutine waits in the queue of the backend by
// itself. That is worse for a process with one goroutine beside a process with many, since it waits
// behind each of these: in one measurement for 713 ms instead of 109 ms.
//
// # Sharing
//
// With [WithShared], any number of acquisitions hold a key together, as readers do. An acquisition
// without it is exclusive, as a writer is. The backend must be able to share keys (driver.Sharer).
// All backends of this repository can, and a quorum can if all its nodes can. Readers and writers
// wait in one queue at the backend, so neither starves the other: a reader does not overtake a
// writer that waits. [Lock.Downgrade] makes a writer a reader without releasing the key in between.
// There is no way to make a reader a writer: two readers that both wanted it would wait for each
// other.
//
// Readers of one [Locker] on the same terms share one lease and its Token, however many they are.
// The first reader asks the backend. Readers that ask before it has an answer get the key together
// with it, and later ones join in memory. Each reader is released by itself, and the last one to
// leave releases the lease.
//
// [WithCohort] bounds this too. Readers join during the span, counted from the first one, or during
// half of it if the first one had to wait at the backend. The next reader after that asks the
// backend whether a writer waits. So does a reader that finds less than a third of the lease left.
// If no writer waits, the answer also renews the lease, and the next span begins. If a writer
// waits, or there is no answer, later readers make a new claim, which waits behind the writer. So a
// writer waits for the span, for that question, and for the reader that holds the key longest. With
// [WithoutRenewal] or WithCohort(1, 0) each reader has a lease of its own.
//
// If a lease is lost, all readers on it are lost. [WithMaxHold] ends only the one reader that
// reaches it.
//
// A reader's Token is larger than that of each writer that was complete when the reader began, and
// smaller than that of each writer that begins after it. So if a reader sends its Token with a
// read, the store can refuse a reader that a writer has overtaken. Two readers may have the same
// Token, and if not, the later reader may have the smaller one. So a store must remember the tokens
// of writers only: if it remembered a reader's, it would refuse other readers wrongly.
//
// # Semaphores
//
// [WithPermits](n) makes a key a semaphore: at most n acquisitions hold it at a time, in all
// processes together. Each of them has a permit. A permit is a lock on one of n numbered slots
// ([Lock.Slot]). Like any lock it has a token and a deadline, is renewed, may be lost, and is
// released. Each slot is an exclusive key at the backend. So the limit holds on every backend, and
// rests on what exclusion rests on.
//
// Tokens rise within a slot, not from one slot to another. So send a store the slot with the token,
// and have the store remember the largest token of each slot.
//
// The backend shows a slot as a key that ends with "@permit/" and the slot's number. While somebody
// waits it shows two more keys: one ends with "@permit/gate" and the number of permits, the other
// with "@permit/scout". Keys of these forms are reserved.
//
// A free permit costs one round trip, or two if the slot that was tried first is taken. In the
// second round trip Acquire asks for three more slots together. If these are taken as well, it
// waits. [Locker.TryAcquire] goes on to ask for more and more slots together until it has tried all
// of them. It may miss a slot that becomes free after it was tried, or that another call has just
// taken and is about to give back. So if two calls want the last permits at the same time, one of
// them may fail though two permits are free, and both may fail though one is free.
//
// A waiter gets the first permit that becomes free, whichever slot it is. Goroutines of one Locker
// on the same terms wait in memory, in the order in which they asked. They hand permits to each
// other without a round trip, in runs that [WithCohort] bounds. Meanwhile one more goroutine of the
// Locker, the scout, waits at the backend for all slots that others have. A Locker without a permit
// starts its scout at once. A Locker with a permit starts it when its first waiter has waited for
// the span of WithCohort. So a permit does not stay free for longer than the span and a few round
// trips while somebody waits.
//
// One scout at a time waits for slots. Scouts of several processes queue for that at one key, the
// gate, so they take turns in the order in which they came, if the backend has a queue. A scout's
// turn ends when all waiters of its Locker have a permit, or a while after it got its first permit:
// after the span, or n milliseconds if that is longer. So a waiter behind k other Lockers has a
// permit after k+1 turns. In each turn the first permit may take as long as the span and the
// shortest hold of those that have a permit.
//
// A turn costs n requests, sent together, to enter the queues of all slots, and n requests to leave
// them. So use hundreds of permits only where they are held for long. If a process dies while it
// has the gate, others wait for the TTL of the gate, which is five seconds or the TTL of the
// permits if that is shorter, and for the time in which the backend's queue notices a dead waiter.
// On ZooKeeper they wait for the end of its session, which is 40 seconds unless set.
// If the backend does not answer requests for the gate for that long, scouts go on without it, in
// no order.
//
// Use the same n everywhere. While processes use different n, as during a rollout, at most the
// largest n acquisitions hold a permit: processes with a smaller n use only the first slots.
// Waiters with the same n are served in one order, and the queues of the slots decide between them
// and waiters with another n. If processes with different n wait at the same time, the log warns
// (see [WithLogger]). Without a wait nobody notices.
//
// A semaphore and a lock of the same key do not exclude each other, even if the semaphore has only
// one permit. Acquiring a permit with a context that comes from a permit of the same key is nested,
// as for locks: it gives the same permit. So a function that takes a permit can call another
// function that does. To get a second permit, use another context. A permit cannot be shared,
// cannot be part of a set ([Locker.AcquireAll]), and cannot be downgraded.
//
// # Several keys
//
// [Locker.AcquireAll] acquires several keys, all or none. It returns one handle on all of them, a
// [LockSet], which ends when the first of its locks is lost. If all keys are free, that costs one
// round trip. If a key is taken, the call waits for keys in the order of their bytes, prefix
// included: while it waits for a key, it holds only keys that come before it. So calls that have
// keys in common cannot wait for each other in a circle. This is so in whatever order they name the
// keys, in one process or several, on the same terms or others.
//
// That order holds within one call. A goroutine that already holds a lock and acquires another key
// may wait in a circle with another goroutine that does the same, until a context ends. This is so
// for Acquire and AcquireAll, and with or without a context of the lock. To avoid it, name all keys
// in one call, or acquire them in the order of their bytes. The same applies to keys of two Lockers
// on different backends, because each has an order of its own.
//
// While a call waits for one key, others wait for the keys that it already has. If that is too
// long, use [Locker.TryAcquireAll], or finer keys.
//
// # Fencing
//
// The backend's tokens rise, whatever clocks do. The tokens for turns that are handed over in
// memory are reserved together with the lease. That matters if the key goes away while the lease is
// still valid: because it is evicted or deleted by hand, or because the server's clock jumps. Then
// another process can take a turn and finish it, and a later turn of this process has an older
// token. This can happen until the span of the run is over, by default 50 ms after its first turn
// began. With WithCohort(1, 0) every turn asks the backend, so tokens rise even then.
//
// A token is the larger of two numbers: the backend's counter, and the client's clock in
// microseconds. So tokens can go on rising even after the backend has lost its counter. A Locker
// reserves tokens for at most one second ahead of its clock, beyond the one that it needs, so
// tokens stay near the clock. They do rise if the clocks of clients agree and more than a second
// passes before the lost counter is used again.
//
// # Reentrancy
//
// A function that locks a key can call another function that locks the same key. It passes on a
// context from [Lock.Context]. An acquisition of the key with this context, on the same Locker, is
// nested and succeeds at once. A nested Lock has the token and the lease of the outermost one, and
// ends with that at the latest. Go has no thread identity, so the context says who asks: goroutines
// that share the context of a lock count as one holder, and the lock does not exclude them from
// each other. [Lock.Context] says how to deal with that.
//
// A nested acquisition ignores all options except [WithShared] and [WithPermits]. A shared
// acquisition can be nested in a shared or an exclusive lock. An exclusive acquisition inside a
// shared lock would wait for itself, so it fails at once with ErrInvalid. A permit is nested only
// in a permit of the key, whatever the numbers of permits, and a lock only in a lock.
//
// [Distributed Locks with Redis]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
// [How to do distributed locking]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
// [Is Redlock safe?]: https://antirez.com/news/101
package holdfast
