package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
)

// A process campaigns for as long as it runs, and works while it leads.
func Example() {
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	e, err := election.New(locker, "scheduler", election.WithIdentity("10.0.0.7:8080"))
	if err != nil {
		log.Fatal(err)
	}
	ctx, shutdown := context.WithCancel(context.Background())
	err = e.Run(ctx, func(ctx context.Context, term election.Term) error {
		leader, err := e.Leader(ctx)
		fmt.Println(leader.Holder.Label, "leads; the token of the term is known:", term.Token() > 0)
		shutdown() // as a signal would
		<-ctx.Done()
		return err
	})
	fmt.Println("Run returned:", err)
	// Output:
	// 10.0.0.7:8080 leads; the token of the term is known: true
	// Run returned: context canceled
}

// Whoever wants to know who leads, a load balancer for example, observes.
func ExampleElection_Observe() {
	backend := memhold.New()
	defer backend.Close()
	locker, _ := holdfast.New(backend)
	defer locker.Close()
	e, _ := election.New(locker, "scheduler", election.WithIdentity("10.0.0.7:8080"),
		election.WithPollInterval(10*time.Millisecond))

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan struct{})
	for leader, err := range e.Observe(ctx) {
		if err != nil {
			fmt.Println("not known:", err)
			continue
		}
		fmt.Printf("leader: %q\n", leader.Holder.Label)
		if leader.Exists() {
			break
		}
		go func() {
			defer close(done)
			e.Run(ctx, func(ctx context.Context, _ election.Term) error {
				<-ctx.Done()
				return nil
			})
		}()
	}
	stop()
	<-done
	// Output:
	// leader: ""
	// leader: "10.0.0.7:8080"
}

// A leader that finds that it should not lead any more gives up, so that another one leads.
func ExampleElection_Resign() {
	backend := memhold.New()
	defer backend.Close()
	locker, _ := holdfast.New(backend)
	defer locker.Close()
	e, _ := election.New(locker, "scheduler")

	ctx, stop := context.WithCancel(context.Background())
	leads := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Run(ctx, func(ctx context.Context, _ election.Term) error {
			close(leads)
			<-ctx.Done()
			fmt.Println("told to end:", context.Cause(ctx))
			stop()
			return nil
		})
	}()
	<-leads
	fmt.Println("resigned:", e.Resign(context.Background()))
	<-done
	// Output:
	// told to end: resigned
	// resigned: <nil>
}

// The errors that Run does not return say why nobody leads.
func ExampleWithOnError() {
	backend := memhold.New()
	locker, _ := holdfast.New(backend)
	defer locker.Close()

	ctx, stop := context.WithCancel(context.Background())
	e, _ := election.New(locker, "scheduler", election.WithOnError(func(err error) {
		fmt.Println("the backend does not answer:", errors.Is(err, holdfast.ErrUnavailable))
		stop()
	}))
	backend.Close() // nobody answers any more
	e.Run(ctx, func(context.Context, election.Term) error { return nil })
	// Output: the backend does not answer: true
}
