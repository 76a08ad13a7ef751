// Package withgocron runs the jobs of gocron v2 once in a fleet, by a lock of Holdfast or by an
// election.
//
//	jobs, err := withgocron.New(locker, 5*time.Second)
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(jobs))
//	_, err = s.NewJob(gocron.CronJob("0 3 * * *", false),
//		gocron.NewTask(jobs.Task("report", func(ctx context.Context, lock *holdfast.Lock) error {
//			return store.Write(ctx, lock.Token()) // ctx ends with the lock
//		})),
//		gocron.WithName("report"))
//
// [Locker] is a gocron.Locker: one lock for each run of a job, so jobs spread over the fleet.
// [Elector] is a gocron.Elector: one process runs all jobs. gocron asks no Locker where it has an
// Elector.
//
// # Clocks that differ
//
// Each scheduler starts a job when its own clock says so. If a job takes 5 ms and two clocks differ
// by a second, the lock is free again when the second scheduler asks for it, and the job runs
// twice. So a Locker keeps the lock for a minimum time, from when gocron asked for it at the
// scheduled start, however soon the job is done. Make it longer than clocks differ, and shorter
// than the interval of the job less that: a run that finds the lock kept is skipped.
//
// The lock is kept in the background, and the job counts as done for gocron. So a process that
// shuts down has the scheduler shut down first, then calls [Locker.Wait], and closes the
// holdfast.Locker last. A process that is killed leaves the lock to its TTL (holdfast.WithTTL), so
// the minimum is kept then as well if the TTL is no shorter.
//
// With an Elector clocks matter only when the leader changes. A job that was due at about that time
// may run on both leaders, one after the other, or on neither.
//
// # A lock that is lost while the job runs
//
// gocron makes the context of a job when the job is added, not for each run. So the context cannot
// be cancelled for one run, and gocron has no other way to stop a job. What happens is this:
//
//   - A job that was made with [Locker.Task] or [Elector.Task] has a context of its own for each
//     run. It ends when the lock is lost, before anybody else can have it; context.Cause gives the
//     [*holdfast.LostError]. The run then counts as failed: gocron calls
//     gocron.AfterJobRunsWithError with that error.
//   - Any other job runs on, and another process may run it at the same time. The function of
//     [WithOnError] is told. Such a job should be one that may run twice.
//
// The context tells a job that runs, and not one that is paused: give the token of the lock, or of
// the term, to the stores that the job writes to (package fence).
//
// # Errors
//
// gocron skips a run whose lock it does not get, whatever the reason. Its event listener
// gocron.AfterLockError gets the error. A [*holdfast.HeldError] is as it should be;
// holdfast.ErrUnavailable means that the backend could not say. A Locker does not wait for a lock:
// the process that has it runs the job now, so after a wait the job would run twice.
package withgocron
