// Package lab is the fault laboratory: real redis-servers, real client processes, a network between them that can be
// spoiled, and a nemesis that breaks all of it while clients lock. What they saw is a history, to be checked by package
// check.
package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/job"
	"github.com/holdfast-go/holdfast/itest/register"
)

// Config says what is run.
type Config struct {
	Nodes       int           // 1: a single Redis; more: Redlock
	Persistence Persistence   // of the servers
	TTL         time.Duration // of the locks; 0 for a second
	Guard       time.Duration // of Redlock; a lone server has no quarantine here
	Wait        time.Duration // the longest wait for a lock; 0 for six leases
	Work        time.Duration // what most do with a lock takes less; 0 for a twentieth of a lease
	Latency     time.Duration // of the network, each way
	Skew        time.Duration // how far the wall clocks of clients are set forward and back, all the time; only for a program with mutants.Skewed
	Clients     int           // processes; 0 for 4
	Workers     int           // goroutines in each; 0 for 6
	Keys        int           // that they take turns on; 0 for 8
	Duration    time.Duration // of the faults
	Seed        uint64        // of what is drawn
	Limits      bool          // also do what breaks documented assumptions
	Faults      []string      // only these; nil for all
	Program     string        // of a client, see Build
	Dir         string        // for everything that is written
}

// allows reports whether the fault is wanted.
func (c *Config) allows(name string) bool {
	return c.Faults == nil || slices.Contains(c.Faults, name)
}

// Mode names what is locked on.
func (c *Config) Mode() string {
	if c.Nodes == 1 {
		return "single Redis"
	}
	mode := "Redlock-" + strconv.Itoa(c.Nodes)
	if c.Skew > 0 {
		mode += " with clients whose clocks step"
	}
	return mode
}

// Phases of a run, as marked in its history.
const (
	Faults = "faults" // clients lock, and the nemesis is at work
	Calm   = "calm"   // clients lock, and everything works
	Probe  = "probe"  // a client of its own acquires each key once
	Closed = "closed" // all have ended
)

// Result is what a run gives.
type Result struct {
	Config  Config          // of the run
	History *history.Run    // what was recorded
	Counts  register.Counts // of the guarded store
}

// run is a laboratory at work.
type run struct {
	config    Config
	log       *history.Log
	nodes     []*Node
	stopNodes func()
	clients   []*client
	register  *register.Register
	socket    string

	mu   sync.Mutex
	errs []error
}

// fail notes that the laboratory itself does not work.
func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// violated records something that must not be.
func (r *run) violated(check, format string, args ...any) {
	r.log.Add(history.Record{Kind: history.Violation, Name: check, Err: fmt.Sprintf(format, args...)})
}

// Build builds the client program into dir, with the files that the overlay replaces; none if it is empty.
func Build(ctx context.Context, dir, overlay string) (program string, err error) {
	program = filepath.Join(dir, "worker")
	args := []string{"build", "-o", program}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/holdfast-go/holdfast/itest/worker")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the client: %w: %s", err, out)
	}
	return program, nil
}

// Run runs the laboratory once. When ctx ends it stops at once, with an error. No process outlives it.
func Run(ctx context.Context, config Config) (_ *Result, err error) {
	config.complete()
	r := &run{config: config}
	defer r.stop()
	if err := r.start(ctx); err != nil {
		return nil, err
	}

	r.mark(Faults)
	faults, cancel := context.WithTimeout(ctx, config.Duration)
	r.nemeses(faults)
	cancel()

	r.mark(Calm)
	calm, cancel := context.WithTimeout(ctx, config.TTL+config.Guard+2*time.Second)
	<-calm.Done()
	cancel()

	for _, c := range r.clients {
		c.order()
	}
	for _, c := range r.clients {
		if err := c.await("closed", patience); err != nil {
			r.violated("leaks", "%v", err)
		}
	}
	r.mark(Probe)
	if err := r.probe(); err != nil {
		r.violated("liveness", "%v", err)
	}
	r.mark(Closed)
	r.inspect(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := r.register.Compare(); err != nil {
		r.violated("register", "%v", err)
	}
	if r.errs != nil {
		return nil, errors.Join(r.errs...)
	}
	logs := []string{filepath.Join(config.Dir, "lab.jsonl")}
	for _, c := range r.clients {
		logs = append(logs, c.logs...)
	}
	h, err := history.Read(logs...)
	return &Result{Config: config, History: h, Counts: r.register.Counts()}, err
}

func (r *run) mark(phase string) { r.log.Add(history.Record{Kind: history.Mark, Name: phase}) }

// start starts everything.
func (r *run) start(ctx context.Context) (err error) {
	dir := r.config.Dir
	if r.log, err = history.Create(filepath.Join(dir, "lab.jsonl"), ""); err != nil {
		return err
	}
	// Not in dir, whose name may be longer than a socket's may be.
	sockets, err := os.MkdirTemp("", "lab")
	if err != nil {
		return err
	}
	r.socket = filepath.Join(sockets, "register")
	report := func(key, text string) { r.violated("register", "%s: %s", key, text) }
	if r.register, err = register.Open(r.socket, filepath.Join(dir, "register.db"), report); err != nil {
		return err
	}
	if r.nodes, r.stopNodes, err = StartNodes(ctx, dir, r.config.Nodes, r.config.Persistence); err != nil {
		return err
	}
	for i := range r.config.Clients {
		c, err := r.newClient("c" + strconv.Itoa(i+1))
		if err != nil {
			return err
		}
		if err := r.spawn(c); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) newClient(slot string) (*client, error) {
	c := &client{slot: slot}
	r.clients = append(r.clients, c)
	for _, node := range r.nodes {
		l, err := newLink(slot, node, r.config.Latency)
		if err != nil {
			return nil, err
		}
		c.links = append(c.links, l)
	}
	return c, nil
}

// spawn starts a client's process.
func (r *run) spawn(c *client) error { return c.spawn(r.config.Program, r.config.Dir, r.job()) }

func (r *run) job() job.Job {
	j := job.Job{Seed: r.config.Seed, TTL: r.config.TTL, Guard: r.config.Guard, Wait: r.config.Wait, Work: r.config.Work, Skew: r.config.Skew,
		Workers: r.config.Workers, Register: r.socket}
	for i := range r.config.Keys {
		j.Keys = append(j.Keys, "key"+strconv.Itoa(i+1))
	}
	return j
}

// probe has a process of its own acquire each key.
func (r *run) probe() error {
	c, err := r.newClient("probe")
	if err != nil {
		return err
	}
	j := r.job()
	j.Probe = true
	if err := c.spawn(r.config.Program, r.config.Dir, j); err != nil {
		return err
	}
	if err := c.await("probed", time.Duration(len(j.Keys))*(r.config.TTL+r.config.Guard+10*time.Second)); err != nil {
		return err
	}
	c.order()
	return c.await("closed", patience)
}

// inspect looks at what is left on the nodes, while the clients still run and have closed everything.
func (r *run) inspect(ctx context.Context) {
	for _, node := range r.nodes {
		// A lease of somebody who was killed may still run.
		within := r.config.TTL + 2*time.Second
		if left := eventually(ctx, within, node.lockClients); left != "" {
			r.violated("leaks", "%s still has connections: %s", node.Name, left)
		}
		if left := eventually(ctx, within, node.orphans); left != "" {
			r.violated("orphans", "%s still has keys: %s", node.Name, left)
		}
	}
}

// eventually asks until there is nothing left, and gives what is at the end.
func eventually(ctx context.Context, within time.Duration, left func() ([]string, error)) string {
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		found, err := left()
		if err == nil && len(found) == 0 {
			return ""
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			if err != nil {
				return err.Error()
			}
			return strings.Join(found, ", ")
		}
	}
}

// stop ends everything that was started.
func (r *run) stop() {
	for _, c := range r.clients {
		if c.process != nil {
			c.process.kill()
		}
		for _, l := range c.links {
			l.close()
		}
	}
	if r.stopNodes != nil {
		r.stopNodes()
	}
	if r.register != nil {
		r.register.Close()
		os.RemoveAll(filepath.Dir(r.socket))
	}
	if r.log != nil {
		r.log.Close()
	}
}

// freeAddress is one that nobody listens on. It is on a loopback address that nobody else is likely to use, so the port stays free while
// its server is down.
func freeAddress() (addr string, err error) {
	for range 100 {
		host := net.IPv4(127, byte(1+rand.IntN(250)), byte(rand.IntN(256)), byte(1+rand.IntN(250)))
		addr = net.JoinHostPort(host.String(), strconv.Itoa(10_000+rand.IntN(22_000)))
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr, nil
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}
