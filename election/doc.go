// Package election has one of many processes lead: a scheduler, a controller, or whatever else must
// run once in a fleet. The leader is the candidate that holds a lock of a holdfast.Locker.
//
//	e, err := election.New(locker, "scheduler", election.WithIdentity("10.0.0.7:8080"))
//	err = e.Run(ctx, func(ctx context.Context, term election.Term) error {
//		return schedule(ctx, term.Token()) // until ctx ends
//	})
//
// # What is promised
//
//   - Nobody leads before the context of the former leader was cancelled or its lease is over. The
//     lease rests on what the Locker's exclusion rests on.
//   - A leader that ends on purpose releases the lock as soon as its function has returned, so the
//     next leader needs one handoff of the backend. This is so for [Election.Resign], a health
//     check that fails, a preferred candidate that waits, and the end of Run's context.
//   - A term's number is its fencing token: it rises from each term to the next. Send it with every
//     write, and have the store refuse a smaller one (package fence).
//   - A panic of the function goes on through Run, after the lock was released.
//   - No error is dropped: it is returned, yielded by [Election.Observe], or told to [WithOnError],
//     which logs by default.
//   - When Run returns, none of its goroutines is left.
//
// # A function that does not return
//
// Go cannot end a function from outside. What happens depends on why its context ended.
//
// If the lock was lost, another candidate may lead at once, while the function still runs. What the
// function writes then does harm unless the store compares tokens. The loss is told at once, and
// [ErrOverdue] after the grace. If the Locker is closed before Run has returned, its locks are lost
// as well, so end the context of Run first.
//
// If the term was ended on purpose, the lock stays held, and is renewed, until the function has
// returned, so an orderly end never overlaps with the next leader. After the grace (see
// [WithGrace]) the lock is released even if the function still runs, and [ErrOverdue] is told. If
// the lock were renewed for longer, one process that hangs would keep everybody from leading, and
// the health check would be of no use where it is needed most. If the lock were released at once,
// two functions would run in every orderly change of the leader.
//
// Run itself always waits for the function, so one Election never runs it twice at a time.
//
// # Pauses
//
// After a term, Run waits before it campaigns again: for a random time between half of a pause and
// all of it. At first it is the smallest pause. It doubles with each term, up to the largest pause.
// After a term that lasted longer than the largest pause it is the smallest again. So a candidate
// that fails as soon as it leads spends less and less time in the lead, and others, which wait in
// the backend's queue meanwhile, come first. After campaigns that failed the pause doubles as well,
// but only to five seconds, so that somebody leads soon when the backend answers again. See
// [WithPause].
//
// # Who leads
//
// [Election.Leader] asks the backend once, and [Election.Observe] asks it again and again: backends
// notify waiters for a lock only, so changes are polled. Both read the label of the lock. It has
// the identity of the leader and, in angle brackets, its payload ([WithPayload]): "node-7
// <10.0.0.7:8080>". So nothing is written beside the lock that could contradict it, and programs
// that know nothing of payloads, such as holdfast ls, show them too. A label has 128 bytes at most,
// and stays the same for the whole term.
//
// # Preferred candidates
//
// With [WithPreferred] an ordinary leader gives up for a preferred candidate that is healthy and
// waits. This is an orderly end: the preferred candidate leads after the function has returned and
// the lock was released. Preferred candidates do not give up for each other. A preferred candidate
// that fails again and again costs each of the others at most one term per largest pause.
//
// The cost is one request per [DefaultPollInterval] while an ordinary candidate leads, and the
// renewals of a second lock while a preferred one waits.
//
// # Candidates of one process
//
// Give each a Locker of its own. Candidates with the same Locker exclude each other as well, but
// the lock may pass between them in memory, on one lease. Then [Election.Leader] shows the identity
// of the candidate that began the lease, and [Election.Observe] shows no change.
package election
