// Package withcron runs a job of robfig/cron v3 once in a fleet, under a lock of Holdfast.
//
//	c := cron.New()
//	report, err := withcron.NewJob(locker, "report", 5*time.Second,
//		func(ctx context.Context, lock *holdfast.Lock) error {
//			return store.Write(ctx, lock.Token()) // ctx ends with the lock
//		})
//	_, err = c.AddJob("0 3 * * *", report)
//
// [SkipIfHeld] is the same as a cron.JobWrapper, for a job that is there already:
//
//	skip, err := withcron.SkipIfHeld(locker, "report", 5*time.Second)
//	_, err = c.AddJob("0 3 * * *", cron.NewChain(skip).Then(job))
//
// Give each job a name of its own. A JobWrapper is not told whose job it wraps, so with
// cron.WithChain all jobs of a Cron would have one lock, and each would run only while no other
// does.
//
// A job that finds the lock held is skipped. It does not wait: the process that has the lock runs
// the job now, so after a wait the job would run twice.
//
// # Clocks that differ
//
// Each Cron starts a job when its own clock says so. If a job takes 5 ms and two clocks differ by a
// second, the lock is free again when the second Cron asks for it, and the job runs twice. So the
// lock is kept for a minimum time, from the start of the run, however soon the job is done. Make it
// longer than clocks differ, and shorter than the interval of the job less that: a run that finds
// the lock kept is skipped.
//
// The job's Run returns when the lock is released. So the context that Cron.Stop returns ends when
// all locks are: wait for it, and close the holdfast.Locker afterwards. [WithContext] ends the wait
// sooner. A process that is killed leaves the lock to its TTL (holdfast.WithTTL), so the minimum is
// kept then as well if the TTL is no shorter.
//
// # A lock that is lost while the job runs
//
// Then another process may have the lock and start the job. cron has no context for jobs, and no
// way to stop one. So:
//
//   - A job of [NewJob] has a context that ends when the lock is lost, before anybody else can have
//     it; context.Cause gives the [*holdfast.LostError]. It should return then.
//   - A job under [SkipIfHeld] cannot be stopped, and runs on.
//   - The function of [WithOnError] is told at once, in both cases.
//
// The context tells a job that runs, and not one that is paused: give the token of the lock to the
// stores that the job writes to (package fence).
package withcron
