// Command worker is one client of the laboratory: a process that uses the library as a service would, on a few keys, and records what it
// does. It ends when its standard input does, as it does with its parent.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/job"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func run() error {
	var j job.Job
	if err := json.Unmarshal([]byte(os.Getenv(job.Variable)), &j); err != nil {
		return fmt.Errorf("%s: %w", job.Variable, err)
	}
	log, err := history.Create(j.Log, j.Client)
	if err != nil {
		return err
	}
	orders := make(chan struct{})
	go func() {
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
			orders <- struct{}{}
		}
		os.Exit(0)
	}()
	store, err := dialStore(j.Register)
	if err != nil {
		return err
	}
	before := runtime.NumGoroutine()

	backend, err := open(&j)
	if err != nil {
		return err
	}
	locker, err := holdfast.New(backend, holdfast.WithTTL(j.TTL), holdfast.WithPrefix("lock:"))
	if err != nil {
		return err
	}
	c := &client{Job: j, log: log, store: store, locker: locker}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	fmt.Println("ready")
	var workers sync.WaitGroup
	switch {
	case j.Probe:
		c.probe(ctx)
		fmt.Println("probed")
	case j.Late:
		if err := c.late(ctx, orders); err != nil {
			return err
		}
	default:
		go c.watchStalls(ctx)
		for i := range j.Workers {
			workers.Go(func() { c.work(ctx, i) })
		}
	}
	<-orders
	stop()
	workers.Wait()

	var problem string
	if err := locker.Close(); err != nil {
		problem = err.Error()
	}
	if err := backend.Close(); err != nil {
		problem += err.Error()
	}
	left := settle(before)
	if left > 0 {
		stacks := make([]byte, 1<<16)
		problem += string(stacks[:runtime.Stack(stacks, true)])
	}
	log.Add(history.Record{Kind: history.Done, Count: left, Err: problem})
	fmt.Println("closed")
	<-orders
	return nil
}

// settle waits for goroutines to end that were told to, and returns how many there are more than before.
func settle(before int) (left int) {
	for range 300 {
		if left = runtime.NumGoroutine() - before; left <= 0 {
			return 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	return left
}

// open opens the backend as an application would. Nodes that are down are no reason to fail.
func open(j *job.Job) (driver.Backend, error) {
	var nodes []driver.Backend
	for _, url := range j.URLs {
		node, err := redishold.Open(context.Background(), url, redishold.WithoutConnecting())
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	return quorum.New(nodes, quorum.WithGuard(j.Guard))
}
