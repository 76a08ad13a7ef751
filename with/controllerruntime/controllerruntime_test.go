package withcontrollerruntime_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/memhold"
	withcontrollerruntime "github.com/holdfast-go/holdfast/with/controllerruntime"
)

const name = "controllers"

var errWork = errors.New("the work failed")

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	m.Run()
}

// fleet is several processes that share one memory.
type fleet struct {
	*testing.T
	memory *memhold.Backend
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t, memhold.New()}
	t.Cleanup(func() { f.memory.Close() })
	return f
}

// locker is that of another process.
func (f *fleet) locker() *holdfast.Locker { return f.lockerOver(f.memory.Client()) }

func (f *fleet) lockerOver(client driver.Backend, options ...holdfast.Option) *holdfast.Locker {
	f.Helper()
	locker, err := holdfast.New(client, append([]holdfast.Option{
		holdfast.WithTTL(500 * time.Millisecond)}, options...)...)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		locker.Close()
		client.Close()
	})
	return locker
}

func (f *fleet) election(options ...election.Option) *election.Election {
	f.Helper()
	return f.electionOver(f.locker(), options...)
}

func (f *fleet) electionOver(l *holdfast.Locker, options ...election.Option) *election.Election {
	f.Helper()
	e, err := election.New(l, name, append([]election.Option{
		election.WithPause(time.Millisecond, time.Millisecond),
		election.WithOnError(func(error) {})}, options...)...)
	if err != nil {
		f.Fatal(err)
	}
	return e
}

// options are those of a manager that asks nobody anything.
func options() manager.Options {
	return manager.Options{Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard(),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			m := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1.SchemeGroupVersion})
			m.Add(v1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			return m, nil
		}}
}

// nowhere has no API server.
var nowhere = &rest.Config{Host: "127.0.0.1:0"}

type setup func(manager.Manager, election.Term) error

// campaign makes a process campaign until it leaves.
func (f *fleet) campaign(e *election.Election, config *rest.Config, s setup) (leave func()) {
	return f.begin(func(ctx context.Context) error {
		return withcontrollerruntime.Run(ctx, e, config, options(), s)
	})
}

// begin runs f until it is told to end.
func (f *fleet) begin(run func(context.Context) error) (leave func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			f.Log(err)
		}
	}()
	leave = func() {
		cancel()
		<-done
	}
	f.Cleanup(leave)
	return leave
}

// work is a runnable. Those for everybody need no leader.
type work struct {
	forEverybody bool
	started      chan context.Context
	goOn         chan struct{} // when it may return after its context has ended
	returned     chan struct{}
}

func newWork() *work {
	w := &work{started: make(chan context.Context, 100), goOn: make(chan struct{}),
		returned: make(chan struct{}, 100)}
	close(w.goOn)
	return w
}

func (w *work) NeedLeaderElection() bool { return !w.forEverybody }

func (w *work) Start(ctx context.Context) error {
	defer func() { w.returned <- struct{}{} }()
	w.started <- ctx
	<-ctx.Done()
	<-w.goOn
	return nil
}

// add makes a manager run them.
func add(all ...*work) setup {
	return func(mgr manager.Manager, _ election.Term) error {
		for _, w := range all {
			if err := mgr.Add(w); err != nil {
				return err
			}
		}
		return nil
	}
}

// steal gives the lock to somebody else.
func (f *fleet) steal() { f.memory.Faults().Give(name, "a thief", time.Hour) }

// waits waits until somebody waits for the lock.
func (f *fleet) waits(l *holdfast.Locker) {
	f.Helper()
	testserver.Eventually(f.T, "somebody waits", func() error {
		entry, err := l.Inspect(f.Context(), name)
		if err != nil {
			return err
		}
		return testserver.Not(len(entry.Waiters) > 0, "nobody waits")
	})
}

func TestTheLeaderRunsItsManager(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := newWork(), newWork()
	var elected <-chan struct{}
	leave := f.campaign(f.election(), nowhere, func(mgr manager.Manager, term election.Term) error {
		elected = mgr.Elected()
		select {
		case <-elected:
			t.Error("Elected is closed before the manager was started")
		default:
		}
		return add(a)(mgr, term)
	})
	ctx := <-a.started
	<-elected
	if token, ok := withcontrollerruntime.Token(ctx); token == 0 || !ok {
		t.Errorf("Token = %v, %v", token, ok)
	}
	f.campaign(f.election(), nowhere, add(b))
	f.waits(f.locker())
	if len(b.started) != 0 {
		t.Error("the work of a standby runs")
	}
	leave()
	if len(a.returned) != 1 {
		t.Error("Run has returned before the work of its manager")
	}
	next := <-b.started
	was, _ := withcontrollerruntime.Token(ctx)
	if token, _ := withcontrollerruntime.Token(next); token <= was {
		t.Errorf("token %v after %v", token, was)
	}
}

// A manager waits for what needs no leader before it tells controllers to end.
func TestLossEndsAllContexts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, other := newWork(), newWork()
	other.forEverybody, other.goOn = true, make(chan struct{})
	f.campaign(f.election(), nowhere, add(a, other))
	ctx := <-a.started
	f.steal()
	<-ctx.Done()
	isLoss(t, ctx)
	close(other.goOn)
}

func isLoss(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := context.Cause(ctx); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the context has ended with %v, want the loss", err)
	}
}

// The work of a leader that resigns ends before the next one leads, in the manager's order.
func TestResignationWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, other, b := newWork(), newWork(), newWork()
	a.goOn = make(chan struct{})
	other.forEverybody, other.goOn = true, make(chan struct{})
	e := f.election(election.WithOnError(func(err error) {
		t.Errorf("%v: the manager has not waited for all", err)
	}))
	plain := make(chan context.Context, 1)
	o := options()
	short := time.Nanosecond
	o.GracefulShutdownTimeout = &short // the grace of the election counts
	s := func(mgr manager.Manager, term election.Term) error {
		return errors.Join(add(a, other)(mgr, term), mgr.Add(manager.RunnableFunc(
			func(ctx context.Context) error { // by default it needs a leader
				plain <- ctx
				<-ctx.Done()
				return nil
			})))
	}
	f.begin(func(ctx context.Context) error {
		return withcontrollerruntime.Run(ctx, e, nowhere, o, s)
	})
	ctx, plainCtx := <-a.started, <-plain
	othersCtx := <-other.started
	f.campaign(f.election(), nowhere, add(b))
	f.waits(f.locker())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Resign(ended); !errors.Is(err, context.Canceled) {
		t.Fatalf("Resign has not waited: %v", err)
	}
	<-othersCtx.Done()
	if ctx.Err() != nil || plainCtx.Err() != nil {
		t.Error("work of the leader was told to end before the manager has come to it")
	}
	close(other.goOn)
	<-ctx.Done()
	if len(b.started) != 0 {
		t.Error("the next one leads while the work of the former still runs")
	}
	close(a.goOn)
	<-b.started
}

// When the grace is over, the lock goes, and with it all contexts.
func TestOverdueEndsAllContexts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, other := newWork(), newWork()
	other.forEverybody, other.goOn = true, make(chan struct{})
	e := f.election(election.WithGrace(time.Millisecond))
	f.campaign(e, nowhere, add(a, other))
	ctx := <-a.started
	if err := e.Resign(t.Context()); !errors.Is(err, election.ErrOverdue) {
		t.Errorf("Resign = %v, want ErrOverdue", err)
	}
	<-ctx.Done()
	close(other.goOn)
}

// The list of config maps, as it is answered and as it is watched.
const (
	item = `{"kind":"ConfigMap","apiVersion":"v1",
"metadata":{"name":"a","resourceVersion":"1"}}`
	list         = `{"kind":"ConfigMapList","apiVersion":"v1","items":[` + item + `]}`
	listAsEvents = `{"type":"ADDED","object":` + item + `}
{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1",
"annotations":{"k8s.io/initial-events-end":"true"}}}}`
)

// apiServer serves a list of config maps, and answers only when begin is closed.
func (f *fleet) apiServer(begin <-chan struct{}) *rest.Config {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-begin:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case q.Get("watch") == "":
			io.WriteString(w, list)
			return
		case q.Get("sendInitialEvents") == "true":
			io.WriteString(w, listAsEvents)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	f.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return &rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{
		ContentType: "application/json"}}
}

// A controller of each term has the same name.
func TestEachTermHasAManager(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	begin := make(chan struct{})
	close(begin)
	var mu sync.Mutex
	var tokens []holdfast.Token
	reconciled := make(chan struct{}, 100)
	e := f.election(election.WithStopOnError())
	f.campaign(e, f.apiServer(begin), func(mgr manager.Manager, term election.Term) error {
		return builder.ControllerManagedBy(mgr).For(&v1.ConfigMap{}).Complete(reconcile.Func(
			func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				token, _ := withcontrollerruntime.Token(ctx)
				if token != term.Token() || r.Name != "a" {
					t.Errorf("%v has token %v, want %v", r, token, term.Token())
				}
				mu.Lock()
				tokens = append(tokens, token)
				mu.Unlock()
				reconciled <- struct{}{}
				return reconcile.Result{}, nil
			}))
	})
	for range 3 {
		<-reconciled
		if err := e.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.IsSorted(tokens) || len(slices.Compact(tokens)) < 3 {
		t.Errorf("tokens %v, want three that rise", tokens)
	}
}

// A manager ends even if its cache is not filled yet.
func TestEndBeforeTheCacheIsFilled(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*fleet, *election.Election){
		"loss":   func(f *fleet, _ *election.Election) { f.steal() },
		"resign": func(f *fleet, e *election.Election) { e.Resign(f.Context()) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			begin := make(chan struct{})
			t.Cleanup(func() { close(begin) })
			e := f.election()
			terms := make(chan election.Term, 100)
			f.campaign(e, f.apiServer(begin), func(mgr manager.Manager, term election.Term) error {
				terms <- term
				_, err := mgr.GetCache().GetInformer(t.Context(), &v1.ConfigMap{})
				return err
			})
			<-terms
			end(f, e)
			f.memory.Faults().Lose(name)
			<-terms // it leads again
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	e := f.election(election.WithStopOnError())
	fails := func(manager.Manager, election.Term) error { return errWork }
	breaks := func(mgr manager.Manager, _ election.Term) error {
		return mgr.Add(manager.RunnableFunc(func(context.Context) error { return errWork }))
	}
	hooks := func(mgr manager.Manager, _ election.Term) error {
		mgr.GetWebhookServer().Register("/", http.NotFoundHandler())
		return nil
	}
	o := options()
	o.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) { return nil, errWork }
	err := withcontrollerruntime.Run(t.Context(), e, nowhere, o, hooks)
	if !errors.Is(err, errWork) {
		t.Errorf("NewCache: %v, want the error", err)
	}
	isInvalid(t, "webhook in setup",
		withcontrollerruntime.Run(t.Context(), e, nowhere, options(), hooks))
	for what, s := range map[string]setup{"set up": fails, "run": breaks} {
		err := withcontrollerruntime.Run(t.Context(), e, nowhere, options(), s)
		if !errors.Is(err, errWork) {
			t.Errorf("%s: %v, want the error", what, err)
		}
	}
	for what, change := range map[string]func(*manager.Options){
		"LeaderElection": func(o *manager.Options) { o.LeaderElection = true },
		"probe":          func(o *manager.Options) { o.HealthProbeBindAddress = ":8081" },
		"pprof":          func(o *manager.Options) { o.PprofBindAddress = ":8082" },
		"webhook": func(o *manager.Options) {
			o.WebhookServer = webhook.NewServer(webhook.Options{})
		},
	} {
		o := options()
		change(&o)
		isInvalid(t, what, withcontrollerruntime.Run(t.Context(), e, nowhere, o, fails))
	}
	isInvalid(t, "no election",
		withcontrollerruntime.Run(t.Context(), nil, nowhere, options(), fails))
	isInvalid(t, "no configuration",
		withcontrollerruntime.Run(t.Context(), e, nil, options(), fails))
	isInvalid(t, "no function",
		withcontrollerruntime.Run(t.Context(), e, nowhere, options(), nil))
}

func isInvalid(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("%s: %v, want ErrInvalid", what, err)
	}
}
