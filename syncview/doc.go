// Package syncview shows a lock of Holdfast as a sync.Locker, for code that takes nothing else,
// such as sync.Cond.
//
//	view, err := syncview.New(ctx, locker, "invoice/42",
//		syncview.WithOnError(func(key string, err error) { stop(err) }))
//	view.Lock()
//	defer view.Unlock()
//	lock := view.Held()
//	err = store.Pay(lock.Context(ctx), invoice, lock.Token()) // the context ends with the lock
//
// # Why holdfast.Locker.Do is better
//
// A sync.Locker has no context and no error, and code that takes one was written for a lock that
// cannot be lost. So wherever the code is yours, use Do. If a library insists on a sync.Locker, see
// first whether Do can go around the call, with a sync.Mutex for the library. These are the limits
// of a [View]:
//
//   - Lock cannot fail. While the backend does not answer it asks again, after random pauses of
//     five seconds at most, until the context of [New] ends. Then it panics, since it cannot return
//     without the lock. The hooks of the holdfast.Locker are told of each attempt that failed.
//   - The code between Lock and Unlock does not learn of a loss, and runs on while others have the
//     lock. The function of [WithOnError] is told, before anybody else can have the lock unless the
//     process is paused, but it cannot stop that code. Code that knows the View can use
//     [View.Held]: its context ends at the loss, and a store that compares its token refuses late
//     writes (package fence).
//   - Unlock cannot say that the lock was lost. A caller that has to know asks Held's Err before
//     Unlock.
//
// # Goroutines of one View
//
// They exclude each other even after a loss: the next one does not have the lock before the former
// one has called Unlock. Other Views, also of this process, have it as soon as the backend gives it
// to them.
//
// Lock is not reentrant, as that of a sync.Mutex is not: a context of the same lock in New makes no
// difference.
package syncview
