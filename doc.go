// Package holdfast is a distributed lock manager: it lets one process at a time work on something that many machines
// share, on the servers they already run.
//
//	locker, err := holdfast.New(backend)
//	err = locker.Do(ctx, "invoice/42", func(ctx context.Context, lock *holdfast.Lock) error {
//		return store.Pay(ctx, invoice, lock.Token())
//	})
//
// A backend comes from a package of its own: memhold (this process), filehold (this machine), redishold (one Redis or
// Valkey), quorum (several independent servers, the Redlock algorithm). Everything else is the same on all of them.
//
// # What is promised
//
//   - Exclusion. At any moment at most one acquisition of a key is valid, as long as the clocks of clients and servers run
//     at the same rate within the drift allowance (see [WithDrift]), and the backend keeps its data.
//   - Fencing. Every acquisition has a [Token], larger than that of every acquisition that was complete when
//     it began. This rests on no clock.
//   - No deadlock. A holder or waiter that crashed, or was cut off, costs at most its TTL.
//   - Loss is told in time. [Lock.Done] is closed, and every context from [Lock.Context] cancelled, no later than the
//     end of the validity: before anybody else can hold the key, also when the backend is frozen, and also after the host was suspended.
//   - Honest errors. Held by another, lost, unavailable, unknown outcome, cancelled: each is its own value.
//   - Nothing left behind. What was cancelled, failed or timed out leaves no key that blocks others
//     beyond one round trip after the backend answers again.
//
// # Caveats
//
// A lock protects for efficiency: it avoids doing the same work twice. For correctness no lock with a lease is
// enough, on any system: a process can be paused after it has checked its lock, and write when the lock is somebody
// else's (K3, K4). The protected store has to refuse it, and the Token is how: send it with every write, and let the store refuse a
// token that is smaller than the largest it has seen.
//
// A paused process is told of a loss when it runs again, not before. A live process is no proof of a
// held lock (R37): ask the Lock, or use its context.
//
// A network that is cut again and again can keep everybody from acquiring for as long as that goes on (R28).
//
// On systems other than Linux the time in which the host was suspended is taken from the wall clock: setting that forward
// ends leases early.
//
// # Validity
//
// A lease counts from before its first request left, and ends at TTL - (TTL x drift + 2 ms) on the local clock (R11, R16). A
// renewal is sent at a third of the TTL, counts from its own start, and is bounded by the deadline that it is to
// replace: an answer that comes later is too late. It is retried until then; a renewal that fails is not yet a loss.
//
// # Waiting
//
// Goroutines of one [Locker] wait for a key in memory, in the order in which they asked, and hand it to each other without a
// round trip; each has its own Token. One of them waits in the queue of the backend. So that other processes get their
// turn, such a run is bounded by [WithCohort].
//
// # Reentrancy
//
// Go has no thread identity, so reentrancy follows the context: see [Locker.Acquire].
package holdfast
