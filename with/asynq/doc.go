// Package withasynq has the periodic tasks of asynq enqueued by one process of a fleet, the leader
// of an election. Another one does it when that is gone.
//
//	e, err := election.New(locker, "periodic tasks")
//	redis := asynq.RedisClientOpt{Addr: "localhost:6379"}
//	err = withasynq.Run(ctx, e, redis,
//		func(_ election.Term, redis asynq.RedisConnOpt) (withasynq.Scheduler, error) {
//			s := asynq.NewScheduler(redis, nil)
//			_, err := s.Register("0 3 * * *", asynq.NewTask("report", nil))
//			return s, err
//		})
//
// asynq's own Scheduler knows of no other: each process that has one enqueues every task. Nor can
// it be started again after it was shut down, so the function is called for each term. It returns
// an asynq.Scheduler or an asynq.PeriodicTaskManager, which it has not started, made with the
// connection that it is given.
//
// # A lock that is lost
//
// Another process may lead then, and enqueues the same tasks. So the scheduler is shut down. That
// is not enough: Shutdown waits for what is being enqueued, and that of a PeriodicTaskManager for
// PeriodicTaskConfigProvider.GetConfigs, while the schedule goes on. So the connection that the
// function is given is a gate. As soon as the lock is lost, or was released, it refuses every
// command but those by which a scheduler removes its own entries; nor is one sent again that was
// not answered. asynq.SchedulerOpts.PostEnqueueFunc is told of the refusal. A scheduler that was
// made with another connection has no such gate.
//
// A command that is under way at that moment, or that a process sends which was paused just before,
// is not stopped: Redis does not know the token of the term.
//
// # An end on purpose
//
// When ctx ends, or by election.Election.Resign, what is being enqueued is enqueued, then the lock
// is released, and the next process leads. A scheduler that does not shut down within the grace
// (election.WithGrace) loses the lock, and finds the gate closed.
//
// # Around a change of the leader
//
// A task that was due while nobody led is not enqueued later. Where clocks differ, a task that was
// due at about that time is enqueued by both leaders, or by none. asynq.Unique keeps a second one
// out for as long as the first is not done. So a task should be one that may run twice.
package withasynq
