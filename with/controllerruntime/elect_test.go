package withcontrollerruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/quorum"
	withcontrollerruntime "github.com/holdfast-go/holdfast/with/controllerruntime"
)

// elected returns a manager of another process with an election, which asks often, and believes for
// a long time that it leads.
func (f *fleet) elected(all ...*work) manager.Manager {
	f.Helper()
	return f.electedOver(f.locker(), 40*time.Second, all...)
}

func (f *fleet) electedOver(l *holdfast.Locker, deadline time.Duration,
	all ...*work) manager.Manager {
	f.Helper()
	o := options()
	retry := 10 * time.Millisecond
	o.RetryPeriod, o.RenewDeadline = &retry, &deadline
	o, err := withcontrollerruntime.Elect(o, l, name)
	if err != nil {
		f.Fatal(err)
	}
	mgr, err := manager.New(nowhere, o)
	if err == nil {
		err = add(all...)(mgr, election.Term{})
	}
	if err != nil {
		f.Fatal(err)
	}
	return mgr
}

func isElected(mgr manager.Manager) bool {
	select {
	case <-mgr.Elected():
		return true
	default:
		return false
	}
}

func TestElectedManagers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b, other := newWork(), newWork(), newWork()
	other.forEverybody = true
	a.goOn = make(chan struct{})
	first, second := f.elected(a), f.elected(b, other)
	leave := f.begin(first.Start)
	ctx := <-a.started
	<-first.Elected()
	f.begin(second.Start)
	standby := <-other.started // what needs no leader runs on a standby
	if _, ok := withcontrollerruntime.Token(standby); ok || isElected(second) {
		t.Error("the standby has a token, or is elected")
	}
	go leave()
	<-ctx.Done()
	if len(b.started) != 0 || isElected(second) {
		t.Error("the next one leads while the work of the former still runs")
	}
	close(a.goOn)
	next := <-b.started
	was, _ := withcontrollerruntime.Token(ctx)
	if token, ok := withcontrollerruntime.Token(next); token <= was || !ok {
		t.Errorf("token %v, %v, after %v", token, ok, was)
	}
}

// The elector still believes that it leads.
func TestElectedManagerThatLoses(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, other := newWork(), newWork()
	other.forEverybody = true
	f.begin(f.elected(a, other).Start)
	ctx, others := <-a.started, <-other.started
	f.steal()
	<-ctx.Done()
	<-others.Done()
	isLoss(t, ctx)
	isLoss(t, others)
}

// An elector that asks again after a loss gets no second term: it would take that for the first.
func TestLockIsTakenOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	o, err := withcontrollerruntime.Elect(options(), f.locker(), name)
	if err != nil {
		t.Fatal(err)
	}
	l := o.LeaderElectionResourceLockInterface
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity()}
	says(t, l, "")
	if err := l.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	says(t, l, l.Identity())
	f.steal()
	<-o.BaseContext().Done()
	if err := l.Update(t.Context(), mine); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Update = %v, want ErrLost", err)
	}
	f.memory.Faults().Lose(name)
	if err := l.Update(t.Context(), mine); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Update of a lock that is free again = %v, want ErrLost", err)
	}
	if _, _, err := l.Get(t.Context()); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Get = %v, want ErrLost", err)
	}
}

func says(t *testing.T, l resourcelock.Interface, who string) {
	t.Helper()
	now, _, err := l.Get(t.Context())
	if err != nil || now.HolderIdentity != who {
		t.Errorf("Get = %v, %v; want the holder %q", now, err, who)
	}
}

// A record that another process holds is not taken, and shows no end to wait for.
func TestLockOfAnother(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	o, err := withcontrollerruntime.Elect(options(), f.locker(), name)
	if err != nil {
		t.Fatal(err)
	}
	l := o.LeaderElectionResourceLockInterface
	lock, err := f.locker().Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	one, first, err := l.Get(t.Context())
	_, second, err2 := l.Get(t.Context())
	if err != nil || err2 != nil || string(first) == string(second) ||
		one.HolderIdentity == l.Identity() || one.HolderIdentity == "" {
		t.Errorf("Get = %v (%s), then %s: %v, %v", one, first, second, err, err2)
	}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity()}
	if err := l.Create(t.Context(), mine); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("Create = %v, want ErrHeld", err)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
		t.Fatal(err)
	}
	<-o.BaseContext().Done()
}

func TestElectInvalid(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	elect := func(l *holdfast.Locker, name string, lock ...holdfast.AcquireOption) error {
		_, err := withcontrollerruntime.Elect(options(), l, name, lock...)
		return err
	}
	isInvalid(t, "no locker", elect(nil, name))
	isInvalid(t, "no name", elect(f.locker(), ""))
	isInvalid(t, "long name", elect(f.locker(), strings.Repeat("n", 1025)))
	isInvalid(t, "no option", elect(f.locker(), name, nil))
	isInvalid(t, "short TTL", elect(f.locker(), name, holdfast.WithTTL(time.Nanosecond)))
	o, err := withcontrollerruntime.Elect(options(), f.locker(), name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = withcontrollerruntime.Elect(o, f.locker(), name)
	isInvalid(t, "twice", err)
}

// hidden does not show its keys.
type hidden struct{ driver.Backend }

func TestElectOverABackendThatShowsNothing(t *testing.T) {
	t.Parallel()
	for what, over := range map[string]func(driver.Backend) (driver.Backend, error){
		"a backend": func(b driver.Backend) (driver.Backend, error) { return hidden{b}, nil },
		"a quorum": func(b driver.Backend) (driver.Backend, error) {
			return quorum.New([]driver.Backend{hidden{b}})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			refused := make(chan struct{}, 1)
			elected := func(all ...*work) manager.Manager {
				backend, err := over(f.memory.Client())
				if err != nil {
					t.Fatal(err)
				}
				return f.electedOver(f.lockerOver(backend, holdfast.WithHooks(holdfast.Hooks{
					Refused: func(e holdfast.RefusedEvent) {
						if errors.Is(e.Err, holdfast.ErrHeld) {
							select {
							case refused <- struct{}{}:
							default:
							}
						}
					}})), 40*time.Second, all...)
			}
			a, b := newWork(), newWork()
			leave := f.begin(elected(a).Start)
			<-a.started
			f.begin(elected(b).Start)
			for range 3 {
				<-refused
			}
			if len(b.started) != 0 {
				t.Error("two lead")
			}
			leave()
			<-b.started
		})
	}
}

type contextKey struct{}

func TestTimesOfElect(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	o := options()
	retry := time.Minute
	o.RetryPeriod = &retry
	o, err := withcontrollerruntime.Elect(o, f.locker(), name)
	if err != nil || *o.RetryPeriod != retry ||
		*o.RenewDeadline != withcontrollerruntime.DefaultRenewDeadline ||
		*o.LeaseDuration != 2*withcontrollerruntime.DefaultRenewDeadline {
		t.Errorf("times %v, %v and %v: %v", *o.RetryPeriod, *o.RenewDeadline, *o.LeaseDuration, err)
	}
}

// The values of the user's BaseContext stay.
func TestBaseContext(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	o := options()
	o.BaseContext = func() context.Context {
		return context.WithValue(context.Background(), contextKey{}, "value")
	}
	o, err := withcontrollerruntime.Elect(o, f.locker(), name)
	if err != nil || o.BaseContext().Value(contextKey{}) != "value" {
		t.Errorf("the value is gone: %v", err)
	}
}
