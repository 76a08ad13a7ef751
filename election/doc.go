// Package election has one of many processes lead: a scheduler, a controller, whatever must run
// once in a fleet. The leader is whoever holds a lock of a holdfast.Locker.
//
//	e, err := election.New(locker, "scheduler", election.WithIdentity("10.0.0.7:8080"))
//	err = e.Run(ctx, func(ctx context.Context, term election.Term) error {
//		return schedule(ctx, term.Token()) // until ctx ends
//	})
//
// # What is promised
//
//   - Nobody leads before the context of the former leader was cancelled, or its lease is over. The
//     lease rests on what the Locker's exclusion rests on.
//   - A leader that ends on purpose releases the lock as soon as its function has returned, so the
//     next one leads within one handoff of the backend. That holds for [Election.Resign], a health
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
// If the lock was lost, another may lead at once, while the function still runs. Only the token
// keeps what it writes then from doing harm. The loss is told at once, and [ErrOverdue] after the
// grace. A Locker that is closed before Run has returned has lost its locks as well: end the
// context of Run first.
//
// If the term was ended on purpose, the lock stays held, and is renewed, until the function has
// returned: so an orderly end never overlaps with the next leader. But no longer than the grace
// (see [WithGrace]). Then the lock is released, and [ErrOverdue] told. To renew for longer would
// keep everybody from leading for as long as one process hangs, and the health check would be of no
// use where it is needed most. To release at once would have two functions run in every orderly
// change of the leader.
//
// Run itself always waits for the function, so one process never runs it twice.
//
// # Pauses
//
// After a term, Run waits before it campaigns again: for a random time between half of a pause and
// all of it. The pause is the smallest at first and doubles with each term, up to the largest. It
// is the smallest again after a term that lasted longer than the largest pause. So a candidate that
// fails as soon as it leads spends less and less of the time in the lead, and others, which wait in
// the backend's queue meanwhile, come first. After campaigns that failed the pause doubles as well,
// but to five seconds at most, so that somebody leads soon when the backend answers again. See
// [WithPause].
//
// # Who leads
//
// [Election.Leader] asks the backend, and [Election.Observe] does so again and again: backends wake
// up only who waits for a lock, so changes are polled. Both read the label of the lock, which has
// the identity of the leader and, in angle brackets, its payload ([WithPayload]): "node-7
// <10.0.0.7:8080>". So nothing is written beside the lock that could contradict it, and programs
// that know nothing of payloads, as holdfast ls, show them too. A label has 128 bytes at most, and
// is the same for the whole term.
//
// # Preferred candidates
//
// With [WithPreferred] an ordinary leader gives up for a preferred candidate that is healthy and
// waits. It is an orderly end: the preferred one leads after the function has returned and the lock
// was released. Preferred candidates do not give up for each other, and one that fails again and
// again costs each of the others one term per largest pause.
//
// It costs a request for each [DefaultPollInterval] while an ordinary candidate leads, and the
// renewals of a second lock while a preferred one waits.
//
// # Candidates of one process
//
// Give each a Locker of its own. Candidates with the same Locker exclude each other as well, but
// the lock may pass between them in memory, with one lease, so that [Election.Leader] shows the
// identity of another one of them, and [Election.Observe] no change.
package election
