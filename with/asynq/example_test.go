package withasynq_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
	withasynq "github.com/holdfast-go/holdfast/with/asynq"
)

// Two processes have the same schedule, and one of them enqueues. When it ends, the other one does.
func Example() {
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	redis := server // in a program: asynq.RedisClientOpt{Addr: "localhost:6379"}

	enqueued := make(chan string, 100)
	candidate := func(name string) (leave func()) {
		locker, err := holdfast.New(backend)
		if err != nil {
			log.Fatal(err)
		}
		e, err := election.New(locker, "periodic tasks", election.WithIdentity(name))
		if err != nil {
			log.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			done <- withasynq.Run(ctx, e, redis,
				func(_ election.Term, redis asynq.RedisConnOpt) (withasynq.Scheduler, error) {
					s := asynq.NewScheduler(redis, &asynq.SchedulerOpts{
						LogLevel: asynq.FatalLevel,
						PostEnqueueFunc: func(info *asynq.TaskInfo, err error) {
							if err == nil {
								enqueued <- fmt.Sprint(name, " enqueues ", info.Type)
							}
						},
					})
					_, err := s.Register("@every 1s", asynq.NewTask("report", nil))
					return s, err
				})
		}()
		return func() {
			cancel()
			<-done
			locker.Close()
		}
	}
	leave := candidate("first")
	fmt.Println(<-enqueued)
	defer candidate("second")()
	leave()
	fmt.Println(<-enqueued)
	// Output:
	// first enqueues report
	// second enqueues report
}
