package withcontrollerruntime_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"

	"k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/holdfast-go/holdfast/election"
)

// A manager that is told to end while it fills its cache starts nothing any more.
func TestNothingBeginsAfterTheEnd(t *testing.T) {
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
			terms := make(chan struct{}, 100)
			a, other := newWork(), newWork()
			other.forEverybody = true
			f.campaign(e, f.apiServer(begin), func(mgr manager.Manager, term election.Term) error {
				terms <- struct{}{}
				_, err := mgr.GetCache().GetInformer(t.Context(), &v1.ConfigMap{})
				return errors.Join(err, add(a, other)(mgr, term))
			})
			for range 10 {
				<-terms
				end(f, e)
				f.memory.Faults().Lose(name)
			}
			<-terms // it leads again
			if n, m := len(a.started), len(other.started); n != 0 || m != 0 {
				t.Errorf("work has begun %d times, and %d times what needs no leader", n, m)
			}
		})
	}
}

// second is a cluster beside that of the manager, with a cache of its own.
type second struct {
	*work
	cache cache.Cache
}

func (s second) GetCache() cache.Cache { return s.cache }

// filled is a cache that is filled when it is closed.
type filled struct {
	cache.Cache
	is chan struct{}
}

func (c filled) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-c.is:
		return true
	case <-ctx.Done():
		return false
	}
}

// The leader's work waits for the cache of a second cluster. The end of a term does not.
func TestSecondCluster(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	e := f.election()
	cluster, a := newWork(), newWork()
	is := filled{is: make(chan struct{})}
	f.campaign(e, nowhere, func(mgr manager.Manager, term election.Term) error {
		return errors.Join(mgr.Add(second{cluster, is}), add(a)(mgr, term))
	})
	<-cluster.started
	if err := e.Resign(t.Context()); err != nil {
		t.Error(err)
	}
	<-cluster.started // in the next term
	if len(a.started) != 0 {
		t.Error("work has begun before the cache was filled")
	}
	close(is.is)
	<-a.started
}

// warmed warms up before it leads.
type warmed struct {
	*work
	warm chan struct{}
}

func (w warmed) Warmup(context.Context) error {
	close(w.warm)
	return nil
}

func TestWarmup(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := warmed{newWork(), make(chan struct{})}
	f.campaign(f.election(), nowhere, func(mgr manager.Manager, _ election.Term) error {
		return mgr.Add(w)
	})
	<-w.warm
	<-w.started
}

// A server, such as one for probes, does not wait for the cache.
func TestServerStartsFirst(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	begin := make(chan struct{})
	t.Cleanup(func() { close(begin) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.campaign(f.election(), f.apiServer(begin), func(mgr manager.Manager, _ election.Term) error {
		_, err := mgr.GetCache().GetInformer(t.Context(), &v1.ConfigMap{})
		return errors.Join(err, mgr.Add(&manager.Server{Listener: listener,
			Server: &http.Server{Handler: http.NotFoundHandler()}}))
	})
	response, err := http.Get("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
}
