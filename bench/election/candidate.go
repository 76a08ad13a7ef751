//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/filehold"
	"github.com/holdfast-go/holdfast/redishold"
)

const (
	kindVariable    = "HOLDFAST_BENCH_CANDIDATE"
	addressVariable = "HOLDFAST_BENCH_ADDRESS"
	leaseVariable   = "HOLDFAST_BENCH_LEASE"
	keyVariable     = "HOLDFAST_BENCH_KEY"

	// step is the time between two acts of a leader.
	step = time.Millisecond
)

// key is the key that a candidate campaigns for.
var key = os.Getenv(keyVariable)

// campaign is a candidate. It resigns when it reads a line, and ends in order on SIGTERM. It writes
// a line when it begins to act as a leader, and one when it has ended.
func campaign(kind, address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ttl, err := time.ParseDuration(os.Getenv(leaseVariable))
	if err != nil {
		return err
	}
	resign := make(chan struct{})
	go func() {
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			resign <- struct{}{}
		}
		stop()
	}()
	switch kind {
	case "etcd":
		return campaignEtcd(ctx, address, ttl, resign)
	case "client-go", "client-go-release":
		return campaignClientGo(ctx, address, ttl, kind == "client-go-release", resign)
	case "consul":
		return campaignConsul(ctx, address, resign)
	}
	return campaignHoldfast(ctx, kind, address, ttl, resign)
}

// act acts as the leader while leads says so. It writes when it began to act, and when it last
// acted. It reads the clock before it asks leads, so a process that was stopped in between did not
// act.
func act(ctx context.Context, leads func() bool) {
	first, last := int64(0), int64(0)
	for {
		now := time.Now().UnixNano()
		if ctx.Err() != nil || !leads() {
			break
		}
		if last = now; first == 0 {
			first = now
			fmt.Printf("lead %d\n", first)
		}
		time.Sleep(step)
	}
	if first != 0 {
		fmt.Printf("end %d %d\n", first, last)
	}
}

func campaignHoldfast(ctx context.Context, kind, address string, ttl time.Duration,
	resign <-chan struct{}) error {
	var backend driver.Backend
	var err error
	if kind == "redis" {
		backend, err = redishold.Open(ctx, address)
	} else {
		backend, err = filehold.Open(address)
	}
	if err != nil {
		return err
	}
	defer backend.Close()
	locker, err := holdfast.New(backend, holdfast.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer locker.Close()
	const pause = 10 * time.Millisecond
	e, err := election.New(locker, key, election.WithPause(pause, pause),
		election.WithOnError(func(error) {}))
	if err != nil {
		return err
	}
	var over sync.WaitGroup
	defer over.Wait()
	over.Go(func() {
		for {
			select {
			case <-resign:
				_ = e.Resign(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	_ = e.Run(ctx, func(ctx context.Context, term election.Term) error {
		act(ctx, func() bool { return term.Err() == nil })
		return nil
	})
	return nil
}

func dialEtcd(address string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{address},
		DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

func campaignEtcd(ctx context.Context, address string, ttl time.Duration,
	resign <-chan struct{}) error {
	client, err := dialEtcd(address)
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		s, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl/time.Second)))
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		e := concurrency.NewElection(s, key)
		for ctx.Err() == nil && lives(s) && e.Campaign(ctx, "x") == nil {
			// As its documentation says: the session's end is the end of the term.
			term, cancel := context.WithCancel(ctx)
			unhook := context.AfterFunc(s.Ctx(), cancel)
			go func() {
				select {
				case <-resign:
					cancel()
				case <-term.Done():
				}
			}()
			act(term, func() bool { return lives(s) })
			cancel()
			unhook()
			bound, done := context.WithTimeout(context.Background(), 5*time.Second)
			_ = e.Resign(bound)
			done()
			time.Sleep(10 * time.Millisecond)
		}
		_ = s.Close()
	}
	return nil
}

func lives(s *concurrency.Session) bool {
	select {
	case <-s.Done():
		return false
	default:
		return true
	}
}
