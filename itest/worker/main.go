// Command worker is one client of the laboratory: a process that uses the library as a service
// would, on a few keys, and records what it does. It ends when its standard input ends, which
// happens when its parent ends.
package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	neturl "net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdhold"
	"github.com/holdfast-go/holdfast/goredishold"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/job"
	"github.com/holdfast-go/holdfast/itest/modeltrace"
	"github.com/holdfast-go/holdfast/itest/stores"
	"github.com/holdfast-go/holdfast/pghold"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/zkhold"
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
	orders := listen()
	if j.Serve {
		return stores.Serve(*j.Stores, j.Keys, func() { fmt.Println("ready") })
	}
	store, err := dialStore(j.Counters)
	if err != nil {
		return err
	}
	before := runtime.NumGoroutine()

	backend, locker, err := connect(&j, log)
	if err != nil {
		return err
	}
	c := &client{Job: j, log: log, store: store, locker: locker}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go log.WatchStalls(ctx, j.Client)
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
	case j.Stores != nil:
		if err := c.guard(orders); err != nil {
			return err
		}
	default:
		c.startAll(ctx, &workers)
	}
	if j.Stores == nil {
		<-orders
	}
	stop()
	workers.Wait()

	log.Add(finish(locker, backend, before))
	fmt.Println("closed")
	<-orders
	return nil
}

// startAll starts all goroutines that lock.
func (c *client) startAll(ctx context.Context, workers *sync.WaitGroup) {
	next := 0
	start := func(n int, work func(ctx context.Context, i int)) {
		for range n {
			i := next
			next++
			workers.Go(func() { work(ctx, i) })
		}
	}
	start(c.Workers, c.work)
	start(c.Hasty, c.hurry)
	start(c.Sets, c.collect)
	start(c.Limited, c.queue)
}

// listen returns the lines of the standard input. When that ends, the process ends.
func listen() <-chan string {
	orders := make(chan string)
	go func() {
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
			orders <- input.Text()
		}
		os.Exit(0)
	}()
	return orders
}

// connect makes a Locker on the backend of the job.
func connect(j *job.Job, log *history.Log) (driver.Backend, *holdfast.Locker, error) {
	backend, err := open(j, log)
	if err != nil {
		return nil, nil, err
	}
	locker, err := holdfast.New(backend, holdfast.WithTTL(j.TTL), holdfast.WithPrefix(prefix))
	return backend, locker, err
}

// finish closes everything. The record says what went wrong, and how many more goroutines there are
// than before.
func finish(locker *holdfast.Locker, backend driver.Backend, before int) history.Record {
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
	return history.Record{Kind: history.Done, Count: left, Err: problem}
}

// settle waits until goroutines that were told to end have ended. It returns how many more there
// are than before.
func settle(before int) (left int) {
	for range 300 {
		if left = runtime.NumGoroutine() - before; left <= 0 {
			return 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	return left
}

// prefix is in front of the keys of locks.
const prefix = "lock:"

// open opens the backend as an application would, and records its calls. It does not fail if nodes
// are down.
func open(j *job.Job, log *history.Log) (driver.Backend, error) {
	var nodes []driver.Backend
	for i, url := range j.URLs {
		node, err := openNode(j, log, fmt.Sprintf("n%d", i+1), url)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	q, err := quorum.New(nodes, quorum.WithGuard(j.Guard))
	if err != nil {
		return nil, err
	}
	return modeltrace.NewAll(q, log, prefix), nil
}

func openNode(j *job.Job, log *history.Log, name, url string) (driver.Backend, error) {
	if !strings.HasPrefix(url, "redis") {
		backend, err := openServers(url)
		if err != nil {
			return nil, err
		}
		return modeltrace.NewServers(backend, log, name, prefix), nil
	}
	if !j.GoRedis {
		backend, err := redishold.Open(context.Background(), url, redishold.WithoutConnecting())
		if err != nil {
			return nil, err
		}
		return modeltrace.NewNode(backend, log, name, prefix, nil), nil
	}
	client, err := openGoRedis(url, j.TTL)
	if err != nil {
		return nil, err
	}
	backend, err := goredishold.New(client)
	if err != nil {
		return nil, err
	}
	// The application closes its client itself: the backend leaves it open.
	return modeltrace.NewNode(backend, log, name, prefix, client.Close), nil
}

// openServers opens a backend on servers that are one to their clients. It goes on until one of
// them is there.
func openServers(url string) (b modeltrace.Quorum, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), reach)
	defer cancel()
	for {
		switch scheme, _, _ := strings.Cut(url, "://"); scheme {
		case "etcd":
			b, err = etcdhold.Open(ctx, url)
		case "postgres":
			b, err = pghold.Open(ctx, url, pghold.WithoutConnecting())
		case "zookeeper":
			b, err = zkhold.Open(ctx, url)
		default:
			return nil, fmt.Errorf("nothing is known of %s", scheme)
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, holdfast.ErrInvalid) {
			return b, err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// reach is how long servers may be away when a process begins.
const reach = time.Minute

// openGoRedis returns the application's own client. The client does not have the name by which the
// laboratory looks for connections that were left open: connections that go-redis leaves are not
// ours.
func openGoRedis(url string, timeout time.Duration) (redis.UniversalClient, error) {
	if addresses, ok := strings.CutPrefix(url, "redis+cluster://"); ok {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(addresses, ","),
			ReadTimeout: timeout, WriteTimeout: timeout}), nil
	}
	if rest, ok := strings.CutPrefix(url, "redis+sentinel://"); ok {
		address, name, _ := strings.Cut(rest, "/")
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: name,
			SentinelAddrs: []string{address}, ReadTimeout: timeout, WriteTimeout: timeout}), nil
	}
	address, query, secure := strings.Cut(url, "?")
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	if secure {
		parameters, err := neturl.ParseQuery(query)
		if err != nil {
			return nil, err
		}
		authority, err := os.ReadFile(parameters.Get("tls-ca"))
		if err != nil {
			return nil, err
		}
		options.TLSConfig.RootCAs = x509.NewCertPool()
		options.TLSConfig.RootCAs.AppendCertsFromPEM(authority)
	}
	options.ReadTimeout, options.WriteTimeout = timeout, timeout
	return redis.NewClient(options), nil
}
