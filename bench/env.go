package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// env is what all measurements share.
type env struct {
	plan
	common   *server   // the server that scenarios share
	nodes    []*server // the servers of the scenario
	proxies  []*proxy  // in front of the first ones of nodes
	at       site      // where drivers find the nodes
	outside  site      // the servers that are not Redis
	programs string    // directory of the programs in other languages
	dir      string
	files    int // so far, for their names
	keys     int // so far, for their names

	ends ends

	mu     sync.Mutex
	opened map[string]*locker
}

// ends are functions to call at the end, the last one first.
type ends []func()

func (all *ends) add(f func()) { *all = append(*all, f) }

func (all *ends) run() {
	for _, f := range slices.Backward(*all) {
		f()
	}
}

// start starts the servers that scenarios share.
func (e *env) start(ctx context.Context, drivers []string) (err error) {
	if e.dir, err = os.MkdirTemp("", "holdfast-bench"); err != nil {
		return err
	}
	e.ends.add(func() { os.RemoveAll(e.dir) })
	if e.common, err = startServer(ctx, e.dir); err != nil {
		return err
	}
	e.ends.add(e.common.stop)
	return e.startOutside(ctx, drivers)
}

// driver returns the driver, connected in this process. It stays connected for the rest of the
// scenario.
func (e *env) driver(ctx context.Context, name string) (l *locker, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.opened[name]; l != nil {
		return l, nil
	}
	if name == redisPy || name == redlockNode {
		l, err = openProgram(context.WithoutCancel(ctx), name, e.programs, e.at.Redis[0])
	} else {
		l, err = open(ctx, name, e.at, ttl)
	}
	if err != nil {
		return nil, err
	}
	e.opened[name] = l
	return l, nil
}

// forget removes the driver and returns it, or nil if it is not connected. The next call of driver
// connects it again.
func (e *env) forget(name string) *locker {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.opened[name]
	delete(e.opened, name)
	return l
}

// key returns a new key.
func (e *env) key() string {
	e.keys++
	return fmt.Sprintf("bench/%d", e.keys)
}

// newPath returns a new path in the directory of the run.
func (e *env) newPath(what string) string {
	e.files++
	return filepath.Join(e.dir, fmt.Sprintf("%s%d", what, e.files))
}

// reset closes the drivers and empties the nodes.
func (e *env) reset() error {
	for name := range maps.Clone(e.opened) {
		e.forget(name).close()
	}
	return e.flush()
}

// enter prepares the servers or the directory of the scenario. leave stops what enter has started.
func (e *env) enter(ctx context.Context, s *scenario) (leave func(), err error) {
	e.nodes, e.proxies, e.at = nil, nil, e.outside
	e.at.NodeTimeout = e.nodeTimeout
	var all ends
	switch {
	case s.files:
		e.at.Directory = e.newPath("locks")
		err = os.Mkdir(e.at.Directory, 0o700)
	case s.nodes > 0:
		err = e.startNodes(ctx, s, &all)
	default:
		e.nodes, e.at.Redis = []*server{e.common}, []string{e.common.address}
	}
	if err != nil {
		all.run()
		return nil, err
	}
	return all.run, nil
}

// startNodes starts the servers of the scenario, and the proxies in front of the first ones.
func (e *env) startNodes(ctx context.Context, s *scenario, all *ends) error {
	for i := range s.nodes {
		dir := e.newPath("node")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		n, err := startServer(ctx, dir)
		if err != nil {
			return err
		}
		all.add(n.stop)
		e.nodes = append(e.nodes, n)
		address := n.address
		if i < s.proxies {
			p, err := startProxy(ctx, address)
			if err != nil {
				return err
			}
			all.add(func() { stopAll(p.child) })
			e.proxies = append(e.proxies, p)
			if err := p.delay(s.delay); err != nil {
				return err
			}
			address = p.address
		}
		e.at.Redis = append(e.at.Redis, address)
	}
	return nil
}

// flush empties the nodes.
func (e *env) flush() error {
	for _, n := range e.nodes {
		if _, err := n.do("FLUSHALL"); err != nil {
			return err
		}
	}
	return nil
}

// info returns the sums of server.info over the nodes.
func (e *env) info() (info, error) {
	sum := make(info)
	for _, n := range e.nodes {
		fields, err := n.info()
		if err != nil {
			return nil, err
		}
		for name, value := range fields {
			sum[name] += value
		}
	}
	return sum, nil
}

// meter measures what this process and the nodes use between two times.
type meter struct {
	e      *env
	before info
	used   time.Duration
}

func (e *env) meter() (*meter, error) {
	runtime.GC()
	before, err := e.info()
	return &meter{e, before, cpuTime(unix.RUSAGE_SELF)}, err
}

// usage returns what was used since the meter was made. It leaves its own INFO out of commands and
// reads.
func (m *meter) usage() (used info, client time.Duration, err error) {
	client = cpuTime(unix.RUSAGE_SELF) - m.used
	after, err := m.e.info()
	used = make(info)
	for name, value := range after {
		used[name] = value - m.before[name]
	}
	used["total_commands_processed"] -= float64(len(m.e.nodes))
	used["total_reads_processed"] -= float64(len(m.e.nodes))
	return used, client, err
}

// stop adds to a sample what each of n pairs has used on average.
func (m *meter) stop(s sample, n float64) error {
	used, client, err := m.usage()
	s["in"] = used["total_net_input_bytes"] / n
	s["out"] = used["total_net_output_bytes"] / n
	s["reads"] = used["total_reads_processed"] / n
	s["server"] = used.cpu() / n
	s["client"] = client.Seconds() / n
	return err
}

// monitored runs f. It returns how many commands clients sent to the nodes meanwhile, and how many
// their scripts called.
func (e *env) monitored(f func() error) (sent, inner float64, err error) {
	var all []*monitor
	for _, n := range e.nodes {
		m, err := n.monitor()
		if err != nil {
			return 0, 0, err
		}
		all = append(all, m)
	}
	errs := []error{f()}
	for _, m := range all {
		s, i, err := m.stop()
		sent, inner = sent+s, inner+i
		errs = append(errs, err)
	}
	return sent, inner, errors.Join(errs...)
}

// count adds to a sample the commands per pair of f, which makes n pairs.
func (e *env) count(s sample, n float64, f func() error) error {
	sent, inner, err := e.monitored(f)
	s["commands"], s["inner"] = sent/n, inner/n
	return err
}

// locksLeft counts the keys of locks on all nodes, without the keys that Holdfast keeps beside
// them.
func (e *env) locksLeft() (left int, err error) {
	for _, n := range e.nodes {
		locks, _, err := n.keys()
		if err != nil {
			return 0, err
		}
		left += locks
	}
	return left, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
