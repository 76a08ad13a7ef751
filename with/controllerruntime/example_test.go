package withcontrollerruntime_test

import (
	"context"
	"fmt"
	"log"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
	withcontrollerruntime "github.com/holdfast-go/holdfast/with/controllerruntime"
)

// Two processes have the same controllers, and one of them runs them. When it ends, the other one
// does.
func Example() {
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	config := nowhere // in a program: ctrl.GetConfigOrDie()

	running := make(chan string)
	candidate := func(name string) (leave func()) {
		locker, err := holdfast.New(backend)
		if err != nil {
			log.Fatal(err)
		}
		e, err := election.New(locker, "controllers", election.WithIdentity(name))
		if err != nil {
			log.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			done <- withcontrollerruntime.Run(ctx, e, config, options(),
				func(mgr manager.Manager, _ election.Term) error {
					// In a program: a controller, by ctrl.NewControllerManagedBy(mgr).
					return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
						_, ok := withcontrollerruntime.Token(ctx)
						running <- fmt.Sprint(name, " leads, with a token: ", ok)
						<-ctx.Done() // ends with the lock
						return nil
					}))
				})
		}()
		return func() {
			cancel()
			<-done
			locker.Close()
		}
	}
	leave := candidate("first")
	fmt.Println(<-running)
	defer candidate("second")()
	leave()
	fmt.Println(<-running)
	// Output:
	// first leads, with a token: true
	// second leads, with a token: true
}

// A manager of its own, whose webhooks, probes and caches run on each process, and its controllers
// on the one that has the lock.
func ExampleElect() {
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	options, err := withcontrollerruntime.Elect(options(), locker, "controllers")
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := manager.New(nowhere, options) // in a program: ctrl.GetConfigOrDie()
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		fmt.Println("the controllers run")
		cancel() // in a program: by ctrl.SetupSignalHandler
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctx); err != nil { // when it returns, the process ends
		log.Fatal(err)
	}
	// Output: the controllers run
}
