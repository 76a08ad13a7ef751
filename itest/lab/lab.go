//go:build unix

package lab

import (
	"context"
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

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/counters"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/job"
)

// prefix is in front of the keys of locks.
const prefix = "lock:"

// Config says what to run.
type Config struct {
	System System // what is locked on
	Pooler bool   // in front of a PostgreSQL
	Nodes  int    // 1: a single Redis; more: Redlock; or servers that are one to their clients
	// or a Cluster of Nodes primaries, whose slots are moved
	Cluster bool
	// each primary has a replica that takes its place, and has it as its own replica then; the
	// slots stay where they are
	Replicas    bool
	Persistence Persistence   // of the servers
	TTL         time.Duration // of the locks; 0 for a second, or for systemTTL
	// by how much a lease may outlive its TTL if its process was killed; 0 for what is known of the
	// system
	Linger time.Duration
	Guard  time.Duration // of Redlock; a lone server has no quarantine here
	Wait   time.Duration // the longest wait for a lock; 0 for six leases
	// of a probe, in addition to a lost lease and a quarantine; 0 for three minutes: the machine
	// may be busy
	Patience time.Duration
	Work     time.Duration // most work with a lock takes less; 0 for a twentieth of a lease
	Latency  time.Duration // of the network, each way
	// by how much the wall clocks of clients are set forward and back, all the time; only for a
	// program with mutants.Skewed
	Skew    time.Duration
	Clients int  // processes; 0 for 4
	GoRedis bool // every second one uses goredishold, the others redishold
	// servers are replaced by others, as by an operator while clients work; for several servers
	// that keep everything
	Replacing bool
	// or the set of servers grows to this number and shrinks to Nodes again, likewise; 0 for never
	Grown    int
	Sentinel bool // or a primary and a replica, which take turns, and a Sentinel
	// clients write to all stores that have a guard, and are stopped between the read and the write
	// until another client has come; then Hasty has to be 0
	Stores  bool
	Stale   int  // how often that has to happen: the run goes on until then, as with Least
	TLS     bool // between clients and servers
	Mute    bool // servers refuse every subscription, so nobody is told of anything
	Workers int  // goroutines in each; 0 for 6
	Keys    int  // that they take turns on; 0 for 8
	// goroutines besides in each, which hold a lock only for a moment, on as many keys of their own
	Hasty int
	// goroutines besides in each, which take several of three further keys at once
	Sets int
	// goroutines besides in each, which ask for permits of a semaphore: half of the clients know of
	// three permits, the others of two
	Permits  int
	Sharing  bool          // clients ask for some keys as readers do, and downgrade others
	Duration time.Duration // of the faults
	// acquisitions: with fewer of them, as on a busy machine, the faults go on
	Least   int
	Seed    uint64   // of what is drawn
	Limits  bool     // also do what breaks documented assumptions
	Faults  []string // only these; nil: all
	Program string   // of a client, see Build
	Dir     string   // for everything that is written
}

// allows reports whether the fault is wanted.
func (c *Config) allows(name string) bool {
	return c.Faults == nil || slices.Contains(c.Faults, name)
}

// Mode returns the name of what is locked on.
func (c *Config) Mode() string {
	mode := "single Redis"
	if c.System != Redis {
		mode = systemModes[c.System]
		if c.Pooler {
			mode += " behind PgBouncer"
		}
	} else if c.Sentinel {
		mode = "primary and replica with a Sentinel"
	} else if c.Cluster {
		mode = "Cluster of " + strconv.Itoa(c.Nodes)
		if c.Replicas {
			mode += " with replicas"
		}
	} else if c.Nodes > 1 {
		mode = "Redlock-" + strconv.Itoa(c.Nodes)
	}
	if c.Mute {
		mode += " that refuses subscriptions"
	}
	if c.TLS {
		mode += " over TLS"
	}
	if c.Replacing {
		mode += " whose servers are replaced"
	}
	if c.Grown > 0 {
		mode += " that grows to " + strconv.Itoa(c.Grown)
	}
	if c.Stores {
		mode += " and guarded stores"
	}
	if c.Skew > 0 {
		mode += " with clients whose clocks step"
	}
	return mode
}

// voters returns how many servers have a say in one lock.
func (c *Config) voters() int {
	if c.Cluster || c.Sentinel || c.System != Redis {
		return 1
	}
	return c.Nodes
}

// Broken is the name of a violation of the laboratory's own: it could not do what it had to.
const Broken = "laboratory"

// undisturbed is for how long clients are at work when nothing is left of the last fault and the
// machine is not too busy. Only then does a lost wake-up show, by a waiter that waits in vain for
// three seconds.
const undisturbed = 5 * time.Second

// mostCalm is the time that a busy machine gets for that, as for a probe.
const mostCalm = 3 * time.Minute

// mostRounds is how often faults go on if there were not enough acquisitions.
const mostRounds = 10

// Result is what a run gives.
type Result struct {
	Config  Config       // of the run
	History *history.Run // what was recorded; nil before it is read
	Logs    []string     // files that History was read from
}

// run is a laboratory at work.
type run struct {
	config    Config
	log       *history.Log
	unwatch   func() // ends WatchStalls
	nodes     []*Node
	shared    []*link // to the servers of a cluster, which has one name for each of them
	sentinel  *sentinel
	system    system           // nil for Redis
	owners    map[uint16]*Node // of slots of a cluster that were moved
	stopNodes func()
	stores    *job.Stores // that clients write to; nil for none
	ends      []func()    // of what they consist of
	clients   []*client
	register  *counters.Server
	socket    string
	guard     time.Duration // of the set of servers, as it is by now
	size      int           // of it: the first of nodes
}

// fail records that the laboratory itself has failed. What it has seen is no proof then, but is
// kept.
func (r *run) fail(err error) { r.violated(Broken, "%v", err) }

// violated records something that must not happen.
func (r *run) violated(check, format string, args ...any) {
	r.log.Add(history.Record{Kind: history.Violation, Name: check,
		Err: fmt.Sprintf(format, args...)})
}

// Build builds the client program into dir, with the files that the overlay replaces; none if it is
// empty.
func Build(ctx context.Context, dir, overlay string) (program string, err error) {
	program = filepath.Join(dir, "worker")
	args := []string{"build", "-o", program}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go",
		append(args, "github.com/holdfast-go/holdfast/itest/worker")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the client: %w: %s", err, out)
	}
	return program, nil
}

// Run runs the laboratory once, and reads what was recorded. It fails as [Record] does, or if that
// cannot be read.
func Run(ctx context.Context, config Config) (*Result, error) {
	result, err := Record(ctx, config)
	if err != nil {
		return nil, err
	}
	return result, result.Read()
}

// Read fills History from Logs.
func (r *Result) Read() (err error) {
	r.History, err = history.Read(r.Logs...)
	return err
}

// Record runs the laboratory once, and leaves History for [Result.Read]. When ctx ends it stops at
// once, with an error. No process outlives it.
func Record(ctx context.Context, config Config) (_ *Result, err error) {
	config.complete()
	if err := config.valid(); err != nil {
		return nil, err
	}
	r := &run{config: config, guard: config.Guard, size: config.Nodes}
	defer r.stop()
	if err := r.start(ctx); err != nil {
		return nil, err
	}

	r.log.Add(history.Record{Kind: history.Setup, Name: config.Mode(), Count: config.voters(),
		TTL: int64(config.TTL), Guard: int64(config.Guard),
		Linger: int64(config.Linger), Stale: config.Stale,
		Clients: config.Clients, Limits: config.Limits, Sharing: config.Sharing,
		Set: config.Sets, Permits: r.job().Permits, Skewed: config.Skew > 0})
	r.mark(history.Tormented)
	if config.Stores {
		err = r.overtake(ctx)
	} else {
		err = r.torment(ctx)
	}
	if err != nil {
		return nil, err
	}
	r.mark(history.Probed)
	if err := r.probe(); err != nil {
		r.violated("liveness", "%v", err)
	}
	r.mark(history.Closed)
	r.inspect(ctx)
	if config.Stores {
		if err := r.readStores(ctx); err != nil {
			r.fail(err)
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := r.register.Compare(); err != nil {
		r.violated("register", "%v", err)
	}
	r.log.Add(history.Record{Kind: history.Undone, At: history.Now(),
		Count: r.register.Counts().Lost})
	r.mark(history.Ended)
	return &Result{Config: config, Logs: r.logs()}, nil
}

// torment keeps the nemesis at work until there are enough acquisitions, leaves the clients alone
// for a while, and ends them.
func (r *run) torment(ctx context.Context) error {
	config := r.config
	nemeses := r.nemeses()
	for round := 1; ; round++ {
		faults, cancel := context.WithTimeout(ctx, config.Duration)
		var all sync.WaitGroup
		for _, n := range nemeses {
			all.Go(func() { n.work(faults) })
		}
		all.Wait()
		cancel()
		if config.Least == 0 || ctx.Err() != nil {
			break
		}
		granted, err := history.Count(history.Grant, r.logs()...)
		if err != nil {
			return err
		}
		if granted >= config.Least {
			break
		}
		if round == mostRounds {
			r.violated("liveness", "only %d acquisitions, in %d times %v", granted,
				round, config.Duration)
			break
		}
	}

	r.mark(history.Calm)
	if err := r.calm(ctx); err != nil {
		return err
	}
	for _, c := range r.clients {
		c.order()
	}
	for _, c := range r.clients {
		if err := c.await("closed", patience); err != nil {
			r.violated("leaks", "%v", err)
		}
	}
	return nil
}

// calm leaves clients at work until they have been undisturbed for long enough.
func (r *run) calm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, mostCalm)
	defer cancel()
	wait := r.config.TTL + r.config.Guard + r.config.Linger + check.Slack + undisturbed
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		// Faults and stalls of this process are in its own log.
		seen, err := history.Read(r.logs()[0])
		if err != nil {
			return err
		}
		wait = undisturbed - check.Watched(seen, history.Now()).Undisturbed
		if wait <= 0 {
			return nil
		}
	}
}

// logs returns the files of the history, the laboratory's own first.
func (r *run) logs() []string {
	logs := []string{filepath.Join(r.config.Dir, "lab.jsonl")}
	for _, c := range r.clients {
		logs = append(logs, c.logs...)
	}
	return logs
}

func (r *run) mark(phase string) { r.log.Add(history.Record{Kind: history.Mark, Name: phase}) }

// start starts everything. It is one function because each step needs what those before it have
// started.
func (r *run) start(ctx context.Context) (err error) {
	dir := r.config.Dir
	if r.log, err = history.Create(filepath.Join(dir, "lab.jsonl"), ""); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { r.log.WatchStalls(ctx, history.Laboratory) })
	r.unwatch = func() { end(); watch.Wait() }
	// It is not in dir, whose name may be too long for a socket.
	sockets, err := os.MkdirTemp("", "lab")
	if err != nil {
		return err
	}
	r.socket = filepath.Join(sockets, "register")
	report := func(key, text string) { r.violated("register", "%s: %s", key, text) }
	if r.register, err = counters.Open(r.socket, filepath.Join(dir, "register.db"),
		report); err != nil {
		return err
	}
	switch {
	case r.config.System != Redis:
		r.system = systems[r.config.System](r)
		err = r.system.start(ctx)
	case r.config.Cluster:
		if err = r.startCluster(ctx); err == nil {
			err = r.findDown()
		}
	case r.config.Sentinel:
		err = r.startSentinel(ctx)
	case r.config.TLS:
		r.nodes, r.stopNodes, err = startNodes(ctx, dir, r.config.Nodes, r.config.Persistence,
			(*Node).encrypt)
	default:
		r.nodes, r.stopNodes, err = StartNodes(ctx, dir, max(r.config.Nodes, r.config.Grown),
			r.config.Persistence)
	}
	if err != nil {
		return err
	}
	if r.config.Stores {
		if err := r.startStores(ctx); err != nil {
			return err
		}
	}
	if r.config.Mute {
		for _, n := range r.nodes {
			if n.Mute = true; n.Restart() != nil {
				return fmt.Errorf("%s does not start anew", n.Name)
			}
		}
	}
	if r.config.Replacing || r.config.Grown > 0 {
		// A server that no client had reached when another one is replaced would count as a new
		// one.
		if err := r.adopt(); err != nil {
			return err
		}
	}
	for i := range r.config.Clients {
		c, err := r.newClient("c" + strconv.Itoa(i+1))
		if err != nil {
			return err
		}
		c.goRedis = r.config.GoRedis && i%2 == 1
		c.behind = i/2%2 == 1
		if r.config.Stores {
			c.key = r.keys()[i%r.config.Keys]
		}
		if err := r.spawn(c); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) newClient(slot string) (*client, error) {
	c := &client{slot: slot, guard: r.guard, size: r.size}
	r.clients = append(r.clients, c)
	if r.config.Sentinel {
		c.url, c.links = r.sentinel.url(), r.shared
		return c, nil
	}
	if r.config.Cluster {
		c.url, c.links = clusterURL(r.shared), r.shared
		return c, nil
	}
	for _, node := range r.targets() {
		l, err := newLink(slot, node, r.config.Latency)
		if err != nil {
			return nil, err
		}
		c.links = append(c.links, l)
	}
	if r.system != nil {
		c.url, c.size = r.system.url(c.addresses()), 0
	}
	return c, nil
}

// spawn starts a client's process.
func (r *run) spawn(c *client) error {
	j := r.job()
	if c.key != "" {
		j.Keys, j.Stores = []string{c.key}, r.stores
	}
	if c.behind {
		j.Permits = fewerPermits
	}
	return r.give(c, j)
}

// give starts a client's process for the job, on the set of servers that the client knows.
func (r *run) give(c *client, j job.Job) error {
	j.Guard = c.guard
	err := c.spawn(r.config.Program, r.config.Dir, j)
	if r.config.voters() > 1 {
		r.log.Add(history.Record{Kind: history.Set, Client: c.name, Count: c.size})
	}
	return err
}

// crashed records the error of a server that ended by itself, if it did.
func (r *run) crashed(err error) {
	if err != nil {
		r.violated("crash", "%v", err)
	}
}

// kill kills a client's process, which leaves what it has as it is.
func (r *run) kill(c *client) {
	if c.process.end() {
		r.violated("crash", "%v", c.ended())
	}
	// It may take a while to end, and does nothing any more meanwhile.
	r.log.Add(history.Record{Kind: history.Death, Client: c.name, At: history.Now()})
	<-c.process.exited
}

func (r *run) job() job.Job {
	j := job.Job{Seed: r.config.Seed, TTL: r.config.TTL, Guard: r.config.Guard, Wait: r.config.Wait,
		Patience: r.config.Patience, Work: r.config.Work, Skew: r.config.Skew,
		Workers: r.config.Workers, Hasty: r.config.Hasty, Sets: r.config.Sets,
		Sharing: r.config.Sharing, Counters: r.socket}
	for i := range r.config.Keys {
		j.Keys = append(j.Keys, "key"+strconv.Itoa(i+1))
	}
	for i := range r.config.Hasty {
		j.Short = append(j.Short, "short"+strconv.Itoa(i+1))
	}
	if r.config.Sets > 0 {
		for i := range 3 {
			j.Grouped = append(j.Grouped, "set"+strconv.Itoa(i+1))
		}
	}
	if j.Limited = r.config.Permits; j.Limited > 0 {
		j.Permits, j.Semaphores = morePermits, []string{"permit1"}
	}
	return j
}

// How many permits clients know of: as while a new number is rolled out.
const morePermits, fewerPermits = 3, 2

// keys returns those of all locks that are not permits.
func (r *run) keys() []string {
	j := r.job()
	return slices.Concat(j.Keys, j.Short, j.Grouped)
}

// stored returns all keys that servers have, those of semaphores included. A semaphore has several.
func (r *run) stored() []string {
	j, keys := r.job(), r.keys()
	for _, semaphore := range j.Semaphores {
		keys = append(keys, history.SemaphoreKeys(semaphore, j.Permits)...)
	}
	return keys
}

// probe makes a separate process acquire each key, and all permits.
func (r *run) probe() error {
	c, err := r.newClient("probe")
	if err != nil {
		return err
	}
	j := r.job()
	j.Probe = true
	j.Keys = r.keys()
	if err := r.give(c, j); err != nil {
		return err
	}
	if err := c.await("probed", r.config.TTL+r.config.Guard+r.config.Linger+r.config.Patience+
		patience); err != nil {
		return err
	}
	c.order()
	return c.await("closed", patience)
}

// inspect looks at what is left on the nodes, while the clients still run but have closed
// everything.
func (r *run) inspect(ctx context.Context) {
	if r.system != nil {
		r.inspectSystem(ctx)
		return
	}
	for _, node := range r.nodes {
		if node.process.ended() {
			r.crashed(node.Kill())
			continue
		}
		// The lease of a client that was killed may still run.
		within := r.config.TTL + r.config.Patience
		if left := eventually(ctx, within, node.lockClients); left != "" {
			r.violated("leaks", "%s still has connections: %s", node.Name, left)
		}
		if left := eventually(ctx, within, node.orphans); left != "" {
			r.violated("orphans", "%s still has keys: %s", node.Name, left)
		}
	}
}

// eventually asks until nothing is left, and returns what is left at the end.
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
	for _, l := range r.shared {
		l.close()
	}
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
	if r.system != nil {
		r.system.stop()
	}
	for _, end := range r.ends {
		end()
	}
	if r.register != nil {
		r.register.Close()
		os.RemoveAll(filepath.Dir(r.socket))
	}
	if r.unwatch != nil {
		r.unwatch()
	}
	if r.log != nil {
		r.log.Close()
	}
}

// freeAddress returns an address on which nobody listens. It is a loopback address that probably
// nobody else uses, so the port stays free while its server is down.
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
