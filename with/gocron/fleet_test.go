package withgocron_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
	withgocron "github.com/holdfast-go/holdfast/with/gocron"
)

var errWork = errors.New("the work failed")

// fleet is several processes, each with a scheduler of its own, that share one memory.
type fleet struct {
	t      *testing.T
	memory *memhold.Backend

	mu  sync.Mutex
	log []string // what happened, in order
}

// play runs a test in a bubble, where time is exact and costs nothing.
func play(t *testing.T, f func(*testing.T, *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := memhold.New()
		t.Cleanup(func() { memory.Close() })
		f(t, &fleet{t: t, memory: memory})
	})
}

func (f *fleet) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, what)
}

func (f *fleet) noted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.log...)
}

// process is one process of the fleet.
type process struct {
	*fleet
	client    *memhold.Backend
	holdfast  *holdfast.Locker
	jobs      *withgocron.Locker // nil: it has an Elector
	elector   *withgocron.Elector
	scheduler gocron.Scheduler

	mu       sync.Mutex
	told     []error // by WithOnError
	failed   []error // by AfterJobRunsWithError
	lockless []error // by AfterLockError
}

// skewed is a clock that is ahead.
type skewed struct {
	clockwork.Clock
	ahead time.Duration
}

func (c skewed) Now() time.Time { return c.Clock.Now().Add(c.ahead) }

// process starts one whose jobs have locks.
func (f *fleet) process(ahead, atLeast time.Duration) *process {
	f.t.Helper()
	p := f.newProcess()
	jobs, err := withgocron.New(p.holdfast, atLeast,
		withgocron.WithOnError(func(_ string, err error) { p.add(&p.told, err) }))
	if err != nil {
		f.t.Fatal(err)
	}
	p.jobs = jobs
	p.start(gocron.WithDistributedLocker(jobs),
		gocron.WithClock(skewed{clockwork.NewRealClock(), ahead}))
	return p
}

// candidate starts one whose jobs run while it leads.
func (f *fleet) candidate(identity string) *process {
	f.t.Helper()
	p := f.newProcess()
	e, err := election.New(p.holdfast, "jobs", election.WithIdentity(identity),
		election.WithOnError(func(err error) { p.add(&p.told, err) }))
	if err != nil {
		f.t.Fatal(err)
	}
	if p.elector, err = withgocron.NewElector(e); err != nil {
		f.t.Fatal(err)
	}
	p.start(gocron.WithDistributedElector(p.elector))
	return p
}

func (f *fleet) newProcess() *process {
	f.t.Helper()
	client := f.memory.Client()
	locker, err := holdfast.New(client)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		locker.Close()
		client.Close()
	})
	return &process{fleet: f, client: client, holdfast: locker}
}

func (p *process) start(options ...gocron.SchedulerOption) {
	p.t.Helper()
	s, err := gocron.NewScheduler(options...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { s.Shutdown() })
	p.scheduler = s
	s.Start()
}

// job adds a job that runs as when says, under its name.
func (p *process) job(name string, when gocron.JobDefinition, task any, at ...time.Time) {
	p.t.Helper()
	options := []gocron.JobOption{gocron.WithName(name), gocron.WithEventListeners(
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) {
			p.add(&p.failed, err)
		}),
		gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			p.add(&p.lockless, err)
		}))}
	for _, start := range at {
		options = append(options, gocron.WithStartAt(gocron.WithStartDateTime(start)))
	}
	if _, err := p.scheduler.NewJob(when, gocron.NewTask(task), options...); err != nil {
		p.t.Fatal(err)
	}
}

var atOnce = gocron.OneTimeJob(gocron.OneTimeJobStartImmediately())

func (p *process) add(list *[]error, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*list = append(*list, err)
}

func (p *process) errors(list *[]error) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]error(nil), *list...)
}

// lose gives the key to somebody else, and waits until its holder has noticed.
func (f *fleet) lose(key string) {
	f.memory.Faults().Give(key, "a thief", time.Hour)
	time.Sleep(holdfast.DefaultTTL)
	synctest.Wait()
}

// isFree reports whether nobody has the lock.
func (f *fleet) isFree(key string) bool {
	f.t.Helper()
	entry, err := f.memory.Inspect(context.Background(), key)
	if err != nil {
		f.t.Fatal(err)
	}
	return entry.Holder.Owner == ""
}
