package withgocron_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
	withgocron "github.com/holdfast-go/holdfast/with/gocron"
)

// Two processes have the same job, and one of them runs it.
func Example() {
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()

	done := make(chan struct{})
	for _, name := range []string{"first", "second"} {
		locker, err := holdfast.New(backend)
		if err != nil {
			log.Fatal(err)
		}
		defer locker.Close()
		jobs, err := withgocron.New(locker, time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(jobs))
		if err != nil {
			log.Fatal(err)
		}
		defer scheduler.Shutdown()

		_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
			gocron.NewTask(jobs.Task("report", func(_ context.Context, lock *holdfast.Lock) error {
				fmt.Println(name, "writes the report; it has a token:", lock.Token() > 0)
				done <- struct{}{}
				return nil
			})),
			gocron.WithName("report"),
			gocron.WithEventListeners(gocron.AfterLockError(
				func(_ uuid.UUID, job string, err error) {
					fmt.Println(name, "skips the", job, "as it is held:",
						errors.Is(err, holdfast.ErrHeld))
					done <- struct{}{}
				})))
		if err != nil {
			log.Fatal(err)
		}
		scheduler.Start()
		<-done
	}
	// Output:
	// first writes the report; it has a token: true
	// second skips the report as it is held: true
}

// One process runs all jobs, for as long as it leads.
func ExampleElector() {
	backend := memhold.New()
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	e, err := election.New(locker, "jobs", election.WithIdentity("10.0.0.7"))
	if err != nil {
		log.Fatal(err)
	}
	elector, err := withgocron.NewElector(e)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- elector.Run(ctx) }()

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	var once sync.Once
	done := make(chan struct{})
	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond),
		gocron.NewTask(elector.Task(func(_ context.Context, term election.Term) error {
			once.Do(func() {
				fmt.Println("the leader writes the report; it has a token:", term.Token() > 0)
				close(done)
			})
			return nil
		})))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-done
	stop()
	fmt.Println("Run returned:", <-ended)
	// Output:
	// the leader writes the report; it has a token: true
	// Run returned: context canceled
}
