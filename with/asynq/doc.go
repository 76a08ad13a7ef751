// Package withasynq has one process of a fleet, the leader of an election, enqueue the periodic
// tasks of asynq. When it is gone, another process leads.
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
// asynq's own Scheduler knows of no other one, so each process that has one enqueues every task. It
// cannot be started again after it was shut down, so the function is called for each term. The
// function returns an asynq.Scheduler or an asynq.PeriodicTaskManager that is not started yet, and
// makes it with the connection that it is given.
//
// # A lock that is lost
//
// Then another process may lead, and enqueue the same tasks. So the scheduler is shut down. That is
// not enough: Shutdown waits for what is being enqueued, and that of a PeriodicTaskManager waits
// for PeriodicTaskConfigProvider.GetConfigs, while the schedule goes on. So the connection that the
// function is given is a gate. As soon as the lock is lost or released, it refuses every command
// except those with which a scheduler removes its own entries. A command that had no answer is not
// sent again either. asynq.SchedulerOpts.PostEnqueueFunc is told of the refusal. A scheduler that
// was made with another connection has no such gate.
//
// A command that is under way at that moment is not stopped, and neither is one of a process that
// was paused just before it sends the command: Redis does not know the token of the term.
//
// # An end on purpose
//
// When ctx ends or election.Election.Resign is called, what is being enqueued is still enqueued.
// Then the lock is released, and the next process leads. A scheduler that does not shut down within
// the grace (election.WithGrace) loses the lock, and finds the gate closed.
//
// # Around a change of the leader
//
// A task that was due while nobody led is not enqueued later. If clocks differ, both leaders or
// neither may enqueue a task that was due at about that time. asynq.Unique keeps a second task out
// for as long as the first is not done. So a task should be one that may run twice.
package withasynq
