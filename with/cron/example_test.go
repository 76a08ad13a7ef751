package withcron_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	withcron "github.com/holdfast-go/holdfast/with/cron"
)

// Two processes have the same job, and one of them runs it.
func Example() {
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	ctx, shutdown := context.WithCancel(context.Background())

	told := make(chan string)
	for _, name := range []string{"first", "second"} {
		locker, err := holdfast.New(backend)
		if err != nil {
			log.Fatal(err)
		}
		defer locker.Close()
		var first sync.Once // of its runs, or of those that it skips
		tell := func(what ...any) { first.Do(func() { told <- fmt.Sprint(what...) }) }
		report, err := withcron.NewJob(locker, "report", time.Minute,
			func(_ context.Context, lock *holdfast.Lock) error {
				tell(name, " writes; it has a token: ", lock.Token() > 0)
				return nil
			},
			withcron.WithContext(ctx),
			withcron.WithOnSkip(func(job string, err error) {
				tell(name, " skips; held: ", errors.Is(err, holdfast.ErrHeld))
			}))
		if err != nil {
			log.Fatal(err)
		}
		c := cron.New()
		if _, err := c.AddJob("@every 1s", report); err != nil {
			log.Fatal(err)
		}
		c.Start()
		fmt.Println(<-told)
		defer func() { <-c.Stop().Done() }()
	}
	shutdown()
	// Output:
	// first writes; it has a token: true
	// second skips; held: true
}

// A job that is there already.
func ExampleSkipIfHeld() {
	backend := memhold.New()
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	skip, err := withcron.SkipIfHeld(locker, "report", 0)
	if err != nil {
		log.Fatal(err)
	}
	job := cron.FuncJob(func() { fmt.Println("writes the report") })
	report := cron.NewChain(cron.Recover(cron.DefaultLogger), skip).Then(job)
	report.Run() // as a Cron does, after AddJob
	// Output: writes the report
}
