package with

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	databasestub "github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
	withasynq "github.com/holdfast-go/holdfast/with/asynq"
	withcertmagic "github.com/holdfast-go/holdfast/with/certmagic"
	withcron "github.com/holdfast-go/holdfast/with/cron"
	withfiber "github.com/holdfast-go/holdfast/with/fiber"
	withgocron "github.com/holdfast-go/holdfast/with/gocron"
	withgoose "github.com/holdfast-go/holdfast/with/goose"
	withmigrate "github.com/holdfast-go/holdfast/with/migrate"
	"github.com/holdfast-go/holdfast/with/redislock"
	withredisson "github.com/holdfast-go/holdfast/with/redisson"
	"github.com/holdfast-go/holdfast/with/redsync"
	"github.com/holdfast-go/holdfast/with/redsync/redis/goredis/v9"
)

const ttl = time.Second

// adapters make a process do its work once under their lock, which has their name, or not at all if
// another process has it. Adapters that return only when ctx ends do it again and again.
var adapters = map[string]func(*process){
	"asynq": func(p *process) {
		withasynq.Run(p.ctx, p.election(), p.tasks,
			func(term election.Term, redis asynq.RedisConnOpt) (withasynq.Scheduler, error) {
				return &scheduler{process: p, term: term, redis: redis}, nil
			})
	},
	"certmagic": func(p *process) {
		ctx, lose := context.WithCancelCause(p.ctx)
		defer lose(nil)
		storage, err := withcertmagic.New(p.locker, &certmagic.FileStorage{},
			withcertmagic.WithOnError(func(_ string, err error) { lose(err) }))
		p.must(err)
		if ok, err := storage.TryLock(p.ctx, p.name); err != nil || !ok {
			return
		}
		p.work(ctx, 0)
		storage.Unlock(p.ctx, p.name)
	},
	"cron": func(p *process) {
		job, err := withcron.NewJob(p.locker, p.name, 0,
			func(ctx context.Context, lock *holdfast.Lock) error {
				return p.work(ctx, lock.Token())
			}, withcron.WithOnError(func(string, error) {}))
		p.must(err)
		job.Run()
	},
	"fiber": func(p *process) {
		locks, err := withfiber.New(p.locker, 0, withfiber.WithOnError(func(string, error) {}))
		p.must(err)
		app := fiber.New()
		app.Use(idempotency.New(idempotency.Config{Lock: locks, Storage: noStorage{},
			KeyHeaderValidate: func(string) error { return nil }}))
		app.Post("/", func(c fiber.Ctx) error {
			lock := locks.Held(p.name)
			return p.work(lock.Context(c.Context()), lock.Token())
		})
		request := httptest.NewRequest(http.MethodPost, "/", nil)
		request.Header.Set("X-Idempotency-Key", p.name)
		_, err = app.Test(request, fiber.TestConfig{})
		p.must(err)
	},
	"gocron": func(p *process) {
		jobs, err := withgocron.New(p.locker, 0, withgocron.WithOnError(func(string, error) {}))
		p.must(err)
		lock, err := jobs.Lock(p.ctx, p.name)
		if err != nil {
			return
		}
		jobs.Task(p.name, func(ctx context.Context, lock *holdfast.Lock) error {
			return p.work(ctx, lock.Token())
		})(p.ctx)
		lock.Unlock(p.ctx)
	},
	"gocron's elector": func(p *process) {
		elector, err := withgocron.NewElector(p.election())
		p.must(err)
		task := elector.Task(func(ctx context.Context, term election.Term) error {
			return p.work(ctx, term.Token())
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.again(func() { task(p.ctx) })
		}()
		elector.Run(p.ctx)
		<-done
	},
	"goose": func(p *process) {
		migrations, err := withgoose.New(p.locker, p.name, withgoose.WithOnError(func(error) {}))
		p.must(err)
		ctx, cancel := migrations.Context(p.ctx)
		defer cancel()
		if migrations.Lock(ctx, nil) != nil {
			return
		}
		lost := p.work(ctx, 0)
		if err := migrations.Unlock(p.ctx, nil); lost != nil && !errors.Is(err, holdfast.ErrLost) {
			p.Errorf("Unlock = %v after the loss", err)
		}
	},
	"migrate": func(p *process) {
		ctx, lose := context.WithCancelCause(p.ctx)
		defer lose(nil)
		stub, err := databasestub.WithInstance(nil, &databasestub.Config{})
		p.must(err)
		driver, err := withmigrate.New(p.locker, p.name, stub, withmigrate.WithOnError(lose))
		p.must(err)
		if driver.Lock() != nil {
			return
		}
		if lost := p.work(ctx, 0); lost != nil {
			if err := driver.Run(strings.NewReader("")); !errors.Is(err, holdfast.ErrLost) {
				p.Errorf("a migration begins after the loss: %v", err)
			}
		}
		driver.Unlock()
	},
	"redislock": func(p *process) {
		client := redislock.New(p.client)
		lock, err := client.Obtain(p.ctx, p.name, ttl, nil)
		if err != nil {
			return
		}
		defer lock.Release(p.ctx)
		held := lock.Held()
		go func() {
			for beat := time.NewTicker(ttl / 4); held.Err() == nil; <-beat.C {
				lock.Refresh(p.ctx, ttl, nil)
			}
		}()
		p.work(held.Context(p.ctx), held.Token(p.name))
	},
	"redisson": func(p *process) {
		p.rlocks.Do(p.ctx, p.name, func(ctx context.Context, lock *holdfast.Lock) error {
			return p.work(ctx, lock.Token())
		})
	},
	"redsync": func(p *process) {
		rs := redsync.New(goredis.NewPool(p.client))
		defer rs.Close()
		mutex := rs.NewMutex(p.name, redsync.WithExpiry(ttl), redsync.WithRenewal(),
			redsync.WithTries(1), redsync.WithTimeoutFactor(1))
		if mutex.LockContext(p.ctx) != nil {
			return
		}
		p.work(mutex.Held().Context(p.ctx), mutex.Held().Token())
		mutex.Unlock()
	},
}

// TestFaults has two processes for each adapter, which work whenever they have its lock. Whatever
// becomes of the server, the work ends, even without an answer of the server, and before anybody
// else begins. When the server is back, somebody works.
func TestFaults(t *testing.T) {
	locks, tasks := redistest.Start(t), redistest.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel()
	var stages []*stage
	for name, adapter := range adapters {
		s := &stage{TB: t, name: name, begun: make(chan struct{})}
		stages = append(stages, s)
		for range 2 {
			p, leave := newProcess(ctx, s, locks.URL(), tasks.URL())
			t.Cleanup(leave)
			ended.Go(func() { p.again(func() { adapter(p) }) })
		}
	}
	for _, fault := range []struct {
		name    string
		forgets bool // while it runs: two may have the lock until the first one hears of it
		hurt    func()
		heal    func()
	}{
		{"frozen", false, locks.Freeze, locks.Thaw},
		{"emptied", true, func() { locks.Do(t, "FLUSHALL") }, func() {}},
		{"restarted without its data", false, locks.Kill, func() { locks.Run(t) }},
		{"last", false, func() {}, nil},
	} {
		t.Log(fault.name, time.Now().Format("05.000"))
		var working []*turn
		for _, s := range stages {
			working = append(working, s.working(fault.forgets))
		}
		if fault.heal == nil {
			return // somebody works again
		}
		fault.hurt()
		for i, s := range stages {
			select {
			case <-working[i].ended:
			case <-time.After(testserver.Patience):
				t.Errorf("%s: the work under the lock of %s goes on", fault.name, s.name)
			}
		}
		fault.heal()
	}
}

// stage is where the processes of an adapter work.
type stage struct {
	testing.TB
	name string

	mu    sync.Mutex
	turns []*turn
	begun chan struct{} // closed when another turn has begun

	tell func(event string, token holdfast.Token) // another process; nil: there is none
}

// turn is the work of one process, once.
type turn struct {
	token holdfast.Token
	ended chan struct{}
}

// working waits until somebody works, and returns that turn. If forgets is true, the server is
// about to forget the lock and its tokens, and so does the stage: that turn may go on while another
// one begins, which may have a smaller token if its request was sent earlier.
func (s *stage) working(forgets bool) *turn {
	s.Helper()
	deadline := time.After(testserver.Patience)
	for {
		s.mu.Lock()
		if n := len(s.turns); n > 0 && s.turns[n-1].running() {
			defer s.mu.Unlock()
			now := s.turns[n-1]
			if forgets {
				s.turns = nil
			}
			return now
		}
		begun := s.begun
		s.mu.Unlock()
		select {
		case <-begun:
		case <-deadline:
			s.Fatalf("%s: nobody works", s.name)
		}
	}
}

func (t *turn) running() bool {
	select {
	case <-t.ended:
		return false
	default:
		return true
	}
}

func (s *stage) begin(token holdfast.Token) *turn {
	now := &turn{token, make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, before := range s.turns {
		if before.running() {
			s.Errorf("%s: two work at a time", s.name)
		}
		if token != 0 && token <= before.token {
			s.Errorf("%s: token %d after %d", s.name, token, before.token)
		}
	}
	s.turns = append(s.turns, now)
	s.say("begin", token)
	close(s.begun)
	s.begun = make(chan struct{})
	return now
}

func (s *stage) end(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say("end", t.token)
	close(t.ended)
}

// say tells another process of an event. The caller holds the mutex.
func (s *stage) say(event string, token holdfast.Token) {
	if s.tell != nil {
		s.tell(event, token)
	}
}

// process is one of those that share the servers.
type process struct {
	*stage
	ctx    context.Context // until the test ends
	locker *holdfast.Locker
	rlocks *holdfast.Locker // in the layout of Redisson
	client *redis.Client
	tasks  asynq.RedisClientOpt
}

// newProcess returns a process whose locks and tasks are at these addresses.
func newProcess(ctx context.Context, s *stage, locks, tasks string) (p *process, leave func()) {
	p = &process{stage: s, ctx: ctx}
	options, err := redis.ParseURL(locks)
	p.must(err)
	p.client = redis.NewClient(options)
	options, err = redis.ParseURL(tasks)
	p.must(err)
	p.tasks = asynq.RedisClientOpt{Addr: options.Addr}
	backend, err := redishold.Open(ctx, locks)
	p.must(err)
	rlocks, err := withredisson.New(p.client)
	p.must(err)
	p.locker, err = holdfast.New(backend, holdfast.WithTTL(ttl))
	p.must(err)
	p.rlocks, err = holdfast.New(rlocks, holdfast.WithTTL(ttl))
	p.must(err)
	return p, func() {
		p.locker.Close()
		p.rlocks.Close()
		backend.Close()
		rlocks.Close()
		p.client.Close()
	}
}

func (p *process) election() *election.Election {
	e, err := election.New(p.locker, p.name, election.WithPause(time.Millisecond, time.Millisecond),
		election.WithOnError(func(error) {}))
	p.must(err)
	return e
}

func (p *process) must(err error) {
	if err != nil {
		panic(fmt.Sprint(p.name, ": ", err))
	}
}

// again calls f until the test ends.
func (p *process) again(f func()) {
	for pause := time.NewTicker(10 * time.Millisecond); p.ctx.Err() == nil; <-pause.C {
		f()
	}
}

// work works until ctx ends. It returns why, or nil at the end of the test.
func (p *process) work(ctx context.Context, token holdfast.Token) error {
	now := p.begin(token)
	defer p.end(now)
	select {
	case <-ctx.Done():
	case <-p.ctx.Done():
	}
	if p.ctx.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// scheduler works from its start to its end.
type scheduler struct {
	*process
	term  election.Term
	redis asynq.RedisConnOpt

	client redis.UniversalClient
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *scheduler) Start() error {
	ctx, cancel := context.WithCancel(s.ctx)
	s.client, s.cancel = s.redis.MakeRedisClient().(redis.UniversalClient), cancel
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		s.work(ctx, s.term.Token())
	}()
	return s.client.Set(s.ctx, s.name, "enqueued", 0).Err()
}

func (s *scheduler) Shutdown() {
	if s.term.Err() != nil && s.client.Set(context.Background(), s.name, "late", 0).Err() == nil {
		s.Errorf("%s: a task is enqueued after the loss", s.name)
	}
	s.cancel()
	<-s.done
}

// noStorage keeps no responses.
type noStorage struct{ fiber.Storage }

func (noStorage) GetWithContext(context.Context, string) ([]byte, error) { return nil, nil }

func (noStorage) SetWithContext(context.Context, string, []byte, time.Duration) error { return nil }
