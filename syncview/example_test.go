package syncview_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/syncview"
)

// A sync.Cond takes a sync.Locker.
func Example() {
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	view, err := syncview.New(context.Background(), locker, "queue",
		syncview.WithOnError(func(_ string, err error) { log.Fatal(err) }))
	if err != nil {
		log.Fatal(err)
	}

	var jobs []string
	cond := sync.NewCond(view)
	go func() {
		view.Lock()
		defer view.Unlock()
		jobs = append(jobs, "pay")
		cond.Signal()
	}()
	view.Lock()
	defer view.Unlock()
	for len(jobs) == 0 {
		cond.Wait()
	}
	fmt.Println(jobs[0], "with a token:", view.Held().Token() > 0)
	// Output: pay with a token: true
}
