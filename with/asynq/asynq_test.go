package withasynq_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/memhold"
	withasynq "github.com/holdfast-go/holdfast/with/asynq"
)

var errWork = errors.New("the work failed")

// server is the Redis of all tests, with tasks and nothing else in it: the locks are in memory, so
// that a lock can be lost while Redis answers.
var server asynq.RedisClientOpt

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path, err := testserver.Find("redis-server", "redis-server")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "asynq")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server = asynq.RedisClientOpt{Network: "unix", Addr: filepath.Join(dir, "socket")}
	client := server.MakeRedisClient().(redis.UniversalClient)
	defer client.Close()
	process := &testserver.Process{Path: path, Dir: dir, Args: []string{"--port", "0", "--save", "",
		"--unixsocket", server.Addr, "--dir", dir},
		Ready: func() error { return client.Ping(context.Background()).Err() }}
	defer process.Remove()
	if err := process.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// databases counts those in use: each test has one.
var databases atomic.Int64

// fleet is several processes that share one memory and one Redis.
type fleet struct {
	*testing.T
	memory    *memhold.Backend
	redis     asynq.RedisClientOpt
	client    redis.UniversalClient
	inspector *asynq.Inspector
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{T: t, memory: memhold.New(), redis: server}
	f.redis.DB = int(databases.Add(1) % 16)
	f.client = f.redis.MakeRedisClient().(redis.UniversalClient)
	f.inspector = asynq.NewInspector(f.redis)
	t.Cleanup(func() {
		f.inspector.Close()
		f.client.Close()
		f.memory.Close()
	})
	if err := f.client.FlushDB(t.Context()).Err(); err != nil { // of a run before, with -count
		t.Fatal(err)
	}
	return f
}

// election returns a candidate of another process.
func (f *fleet) election(options ...election.Option) *election.Election {
	f.Helper()
	client := f.memory.Client()
	locker, err := holdfast.New(client, holdfast.WithTTL(500*time.Millisecond))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		locker.Close()
		client.Close()
	})
	e, err := election.New(locker, "tasks", append([]election.Option{
		election.WithPause(time.Millisecond, time.Millisecond),
		election.WithOnError(func(error) {})}, options...)...)
	if err != nil {
		f.Fatal(err)
	}
	return e
}

type build func(election.Term, asynq.RedisConnOpt) (withasynq.Scheduler, error)

// campaign makes a process campaign until it leaves.
func (f *fleet) campaign(e *election.Election, redis asynq.RedisConnOpt, b build) (leave func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		withasynq.Run(ctx, e, redis, b)
	}()
	leave = func() {
		cancel()
		<-done
	}
	f.Cleanup(leave)
	return leave
}

// lose gives the lock to somebody else, and waits until the leader has noticed.
func (f *fleet) lose(term election.Term) {
	f.Helper()
	f.memory.Faults().Give("tasks", "a thief", time.Hour)
	testserver.Eventually(f.T, "the loss is noticed", func() error {
		return testserver.Not(errors.Is(term.Err(), holdfast.ErrLost), "%v: %v", term, term.Err())
	})
}

// enqueued returns who has enqueued tasks, in order.
func (f *fleet) enqueued() (by []string) {
	f.Helper()
	tasks, err := f.inspector.ListPendingTasks("default")
	if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
		f.Fatal(err)
	}
	for _, task := range tasks {
		by = append(by, string(task.Payload))
	}
	return by
}

// await waits until name is the last that has enqueued a task.
func (f *fleet) await(name string) {
	f.Helper()
	testserver.Eventually(f.T, "a task of "+name, func() error {
		by := f.enqueued()
		return testserver.Not(len(by) > 0 && by[len(by)-1] == name, "enqueued by %q", by)
	})
}

// ticks is what a scheduler says of its tasks.
type ticks struct {
	asynq.SchedulerOpts
	term  chan election.Term // before the first one is enqueued, which waits for goOn
	goOn  chan struct{}
	first sync.Once
	ended chan error // each, after it was enqueued or refused
	now   election.Term
}

func newTicks() *ticks {
	s := &ticks{term: make(chan election.Term, 1), goOn: make(chan struct{}),
		ended: make(chan error, 1000)}
	s.PreEnqueueFunc = func(*asynq.Task, []asynq.Option) {
		s.first.Do(func() {
			s.term <- s.now
			<-s.goOn
		})
	}
	s.PostEnqueueFunc = func(_ *asynq.TaskInfo, err error) { s.ended <- err }
	s.LogLevel = asynq.FatalLevel
	return s
}

func task(name string) *asynq.Task { return asynq.NewTask("report", []byte(name)) }

// scheduler makes one that enqueues a task each second.
func (s *ticks) scheduler(name string) build {
	return func(term election.Term, redis asynq.RedisConnOpt) (withasynq.Scheduler, error) {
		s.now = term
		scheduler := asynq.NewScheduler(redis, &s.SchedulerOpts)
		_, err := scheduler.Register("@every 1s", task(name))
		return scheduler, err
	}
}

// provider has the same task, and blocks when it is asked again.
type provider struct {
	asked atomic.Int64
	again chan struct{}
	goOn  chan struct{}
}

func (p *provider) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	if p.asked.Add(1) == 2 {
		close(p.again)
		<-p.goOn
	}
	return []*asynq.PeriodicTaskConfig{{Cronspec: "@every 1s", Task: task("a")}}, nil
}

func (s *ticks) manager(p *provider) build {
	return func(term election.Term, redis asynq.RedisConnOpt) (withasynq.Scheduler, error) {
		s.now = term
		return asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{RedisConnOpt: redis,
			PeriodicTaskConfigProvider: p, SchedulerOpts: &s.SchedulerOpts,
			SyncInterval: time.Millisecond})
	}
}

func TestTheLeaderEnqueues(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := newTicks(), newTicks()
	close(a.goOn)
	close(b.goOn)
	leave := f.campaign(f.election(), f.redis, a.scheduler("a"))
	<-a.term
	f.campaign(f.election(), f.redis, b.scheduler("b"))
	f.await("a")
	leave()
	f.await("b")
	if by := f.enqueued(); !slices.IsSorted(by) {
		t.Errorf("enqueued by %q; want by a, then by b", by)
	}
}

// A task that was due before the loss, and would be enqueued after it.
func TestLossStopsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	s := newTicks()
	f.campaign(f.election(), f.redis, s.scheduler("a"))
	f.lose(<-s.term)
	close(s.goOn)
	isRefused(t, <-s.ended)
	if by := f.enqueued(); len(by) != 0 {
		t.Errorf("enqueued by %q after the loss", by)
	}
}

// After a loss, too, a scheduler removes what it has stored about itself, if need be over new
// connections.
func TestNothingIsLeftAfterALoss(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	s := newTicks()
	close(s.goOn)
	s.HeartbeatInterval = time.Second
	left := make(chan []string, 1)
	f.campaign(f.election(), f.redis,
		func(term election.Term, redis asynq.RedisConnOpt) (withasynq.Scheduler, error) {
			scheduler, err := s.scheduler("a")(term, redis)
			return &reporting{scheduler, func() {
				keys, err := f.client.Keys(context.Background(), "asynq:schedulers*").Result()
				if err != nil {
					t.Error(err)
				}
				left <- keys
			}}, err
		})
	term := <-s.term
	testserver.Eventually(t, "the scheduler is known", func() error {
		entries, err := f.inspector.SchedulerEntries()
		return errors.Join(err, testserver.Not(len(entries) == 1, "%v", entries))
	})
	f.disconnect()
	f.lose(term)
	if keys := <-left; len(keys) != 0 {
		t.Errorf("%q are left", keys)
	}
}

// reporting calls f when the scheduler has shut down.
type reporting struct {
	withasynq.Scheduler
	f func()
}

func (r *reporting) Shutdown() {
	r.Scheduler.Shutdown()
	r.f()
}

// disconnect ends all connections to the database of the fleet but the one that asks.
func (f *fleet) disconnect() {
	f.Helper()
	me, err := f.client.ClientID(f.Context()).Result()
	if err != nil {
		f.Fatal(err)
	}
	list, err := f.client.ClientList(f.Context()).Result()
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(list) {
		id := strings.TrimPrefix(strings.Fields(line)[0], "id=")
		if strings.Contains(line, fmt.Sprintf(" db=%d ", f.redis.DB)) && id != fmt.Sprint(me) {
			f.client.ClientKillByFilter(f.Context(), "ID", id)
		}
	}
}

// A manager that waits for its configuration does not shut down, and goes on. When it does, the
// process campaigns again.
func TestLossStopsAManagerThatStandsStill(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	s, p := newTicks(), &provider{again: make(chan struct{}), goOn: make(chan struct{})}
	f.campaign(f.election(), f.redis, s.manager(p))
	<-p.again
	term := <-s.term
	close(s.goOn)
	if err := <-s.ended; err != nil {
		t.Fatal(err)
	}
	f.lose(term)
	n := len(f.enqueued())
	for err := range s.ended { // some may have been enqueued before the loss
		if err != nil {
			isRefused(t, err)
			break
		}
	}
	if by := f.enqueued(); len(by) != n {
		t.Errorf("%d tasks after the loss, and %d at it", len(by), n)
	}
	close(p.goOn)
	f.memory.Faults().Lose("tasks")
	for err := range s.ended {
		if err == nil {
			break // it leads again
		}
	}
}

// A command that was not sent when the lock ended is not sent later.
func TestNothingIsSentLater(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fleet, *election.Election, election.Term){
		"loss": func(f *fleet, _ *election.Election, term election.Term) { f.lose(term) },
		"overdue": func(f *fleet, e *election.Election, _ election.Term) {
			if err := e.Resign(f.Context()); !errors.Is(err, election.ErrOverdue) {
				f.Errorf("Resign = %v, want ErrOverdue", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			s := newTicks()
			close(s.goOn)
			f.loadScript()
			slow := &slowHook{asked: make(chan struct{}), goOn: make(chan struct{})}
			e := f.election(election.WithGrace(time.Millisecond))
			f.campaign(e, f.redis,
				func(term election.Term, conn asynq.RedisConnOpt) (withasynq.Scheduler, error) {
					s.now = term
					client := conn.MakeRedisClient().(redis.UniversalClient)
					client.AddHook(slow) // comes after that of the gate
					scheduler := asynq.NewSchedulerFromRedisClient(client, &s.SchedulerOpts)
					_, err := scheduler.Register("@every 1s", task("a"))
					return scheduler, err
				})
			<-slow.asked
			end(f, e, <-s.term)
			close(slow.goOn)
			if err := <-s.ended; err == nil || len(f.enqueued()) != 0 {
				t.Errorf("%v, enqueued by %q after the end", err, f.enqueued())
			}
		})
	}
}

// loadScript makes the server know the script that enqueues. Otherwise the script is sent a second
// time.
func (f *fleet) loadScript() {
	f.Helper()
	client := asynq.NewClient(f.redis)
	defer client.Close()
	if _, err := client.Enqueue(task(""), asynq.Queue("other")); err != nil {
		f.Fatal(err)
	}
}

// slowHook makes the first command that enqueues wait.
type slowHook struct {
	once        sync.Once
	asked, goOn chan struct{}
}

func (*slowHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *slowHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if command.Name() == "evalsha" {
			h.once.Do(func() {
				close(h.asked)
				<-h.goOn
				select { // the lock has ended, and this follows
				case <-ctx.Done():
				case <-time.After(testserver.Patience):
				}
			})
		}
		return next(ctx, command)
	}
}

func (*slowHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A task that is being enqueued when a leader leaves is enqueued before the next one leads.
func TestLeavingEnqueuesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := newTicks(), newTicks()
	close(b.goOn)
	e := f.election()
	f.campaign(e, f.redis, a.scheduler("a"))
	<-a.term
	f.campaign(f.election(), f.redis, b.scheduler("b"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Resign(ended); !errors.Is(err, context.Canceled) {
		t.Fatalf("Resign has not waited: %v", err)
	}
	close(a.goOn)
	if err := <-a.ended; err != nil {
		t.Errorf("it was refused: %v", err)
	}
	f.await("b")
	if by := f.enqueued(); by[0] != "a" || !slices.IsSorted(by) {
		t.Errorf("enqueued by %q; want by a, then by b", by)
	}
}

// A manager that does not start leaves no connection.
func TestStartThatFails(t *testing.T) {
	f := newFleet(t)
	e := f.election(election.WithStopOnError())
	var clients []*asynq.Client
	for range 3 {
		err := withasynq.Run(t.Context(), e, f.redis,
			func(_ election.Term, redis asynq.RedisConnOpt) (withasynq.Scheduler, error) {
				clients = append(clients, asynq.NewClient(redis))
				if err := clients[len(clients)-1].Ping(); err != nil {
					t.Error(err)
				}
				return asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{
					RedisConnOpt: redis, PeriodicTaskConfigProvider: failing{}})
			})
		if !errors.Is(err, errWork) {
			t.Fatalf("Run = %v, want the error of the provider", err)
		}
	}
	testserver.Eventually(t, "the connections are closed", func() error {
		list, err := f.client.ClientList(t.Context()).Result()
		if err != nil {
			return err
		}
		// One of TestMain, and one of the fleet: its Inspector has asked nothing yet.
		return testserver.Not(strings.Count(list, " addr=") <= 2, "%s", list)
	})
	runtime.KeepAlive(clients) // the collector would close their connections as well
}

type failing struct{}

func (failing) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) { return nil, errWork }

func TestInvalid(t *testing.T) {
	f := newFleet(t)
	e := f.election(election.WithStopOnError())
	none := func(election.Term, asynq.RedisConnOpt) (withasynq.Scheduler, error) { return nil, nil }
	fails := func(election.Term, asynq.RedisConnOpt) (withasynq.Scheduler, error) {
		return nil, errWork
	}
	for name, err := range map[string]error{
		"no election":   withasynq.Run(t.Context(), nil, f.redis, none),
		"no connection": withasynq.Run(t.Context(), e, nil, none),
		"no function":   withasynq.Run(t.Context(), e, f.redis, nil),
		"no scheduler":  withasynq.Run(t.Context(), e, f.redis, none),
	} {
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if err := withasynq.Run(t.Context(), e, f.redis, fails); !errors.Is(err, errWork) {
		t.Errorf("Run = %v, want the error of the function", err)
	}
}

func isRefused(t *testing.T, err error) {
	t.Helper()
	// asynq keeps the text of an error, and nothing else.
	if err == nil || !strings.Contains(err.Error(), "is refused after the term") {
		t.Errorf("the task was enqueued: %v", err)
	}
}
