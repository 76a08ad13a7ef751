package fencetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fence"
)

// rule is one promise of a guard, and how to see whether it keeps it.
type rule struct {
	name  string
	needs func(*suite) string // why it does not apply, or ""; nil: it always does
	check func(*suite)
}

var rules = slices.Concat(orderRules, invalidRules, contextRules, concurrencyRules, crashRules)

func (r rule) absent(s *suite) string {
	if r.needs == nil {
		return ""
	}
	return r.needs(s)
}

func index(name string) int {
	return slices.IndexFunc(rules, func(r rule) bool { return r.name == name })
}

// suite is what the check of one rule works with. Its methods end the test when a call does not go
// as it has to, so only the goroutine of the check may call them.
type suite struct {
	testing.TB
	Harness
	Store
}

// step is the pause between two looks at a state that is waited for.
const step = 5 * time.Millisecond

// limit returns a context for one call. It ends long after a call has to be back.
func (s *suite) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.Context()), s.Patience)
}

// resource makes a resource that nobody has written.
func (s *suite) resource(name string) string {
	s.Helper()
	if s.Create == nil {
		return name
	}
	ctx, cancel := s.limit()
	defer cancel()
	if err := s.Create(ctx, name); err != nil {
		s.Fatalf("Create(%q): %v", name, err)
	}
	return name
}

// try writes and returns the error, whatever it is.
func (s *suite) try(resource string, token fence.Token, value string) error {
	ctx, cancel := s.limit()
	defer cancel()
	return s.Write(ctx, resource, token, value, nil)
}

// accepts writes, which must be accepted and be there afterwards.
func (s *suite) accepts(resource string, token fence.Token, value string) {
	s.Helper()
	if err := s.try(resource, token, value); err != nil {
		s.Fatalf("write to %.40q with token %d: %v; want it accepted", resource, token, err)
	}
	s.has(resource, value)
}

// refuses writes, which must be refused as stale by the newest token, and leave no trace.
func (s *suite) refuses(resource string, token, newest fence.Token) {
	s.Helper()
	before := s.value(resource)
	err := s.try(resource, token, "stale")
	if !s.isStale(err, resource, token) {
		return
	}
	var stale *fence.StaleError
	if errors.As(err, &stale) && stale.Newest != 0 && stale.Newest != newest {
		s.Errorf("write to %.40q with token %d: the newest token is said to be %d; it is %d",
			resource, token, stale.Newest, newest)
	}
	s.has(resource, before)
}

// isStale checks that err is the refusal of that write.
func (s *suite) isStale(err error, resource string, token fence.Token) bool {
	s.Helper()
	var stale *fence.StaleError
	switch {
	case err == nil:
		s.Errorf("write to %.40q with token %d is accepted after a larger one; want ErrStale",
			resource, token)
		return false
	case !errors.Is(err, fence.ErrStale), errors.Is(err, fence.ErrNotFound),
		errors.Is(err, fence.ErrInvalid):
		s.Errorf("write to %.40q with token %d: %v; want ErrStale, and only that", resource,
			token, err)
		return false
	case !errors.As(err, &stale):
		s.Errorf("write to %.40q with token %d: %v; want a StaleError", resource, token, err)
		return false
	case stale.Resource == "" || stale.Token != token:
		s.Errorf("write to %.40q with token %d: the error names resource %q and token %d", resource,
			token, stale.Resource, stale.Token)
		return false
	}
	return true
}

// fails writes with a call of its own, which must fail with the kind of error and write nothing.
func (s *suite) fails(resource string, token fence.Token, kind error) {
	s.Helper()
	err := s.try(resource, token, "invalid")
	if !errors.Is(err, kind) || errors.Is(err, fence.ErrStale) {
		s.Errorf("write to %.40q with token %d: %v; want an error that is %q, and is not stale",
			resource, token, err, kind)
	}
}

// value reads the resource.
func (s *suite) value(resource string) string {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	v, err := s.Read(ctx, resource)
	if err != nil {
		s.Fatalf("Read(%.40q): %v", resource, err)
	}
	return v
}

// has checks the value of the resource.
func (s *suite) has(resource, want string) {
	s.Helper()
	if got := s.value(resource); got != want {
		s.Fatalf("%.40q has the value %q; want %q", resource, got, want)
	}
}

// write is a write that runs.
type write struct {
	inside chan struct{} // closed when it is paused in the middle
	resume func()        // lets it go on; may be called again
	done   chan error
}

// begin starts a write that is paused in the middle.
func (s *suite) begin(ctx context.Context, resource string, token fence.Token,
	value string) *write {
	s.Helper()
	goOn := make(chan struct{})
	w := &write{inside: make(chan struct{}), done: make(chan error, 1)}
	open := false
	w.resume = func() {
		if !open {
			open = true
			close(goOn)
		}
	}
	go func() {
		w.done <- s.Write(ctx, resource, token, value, func() {
			close(w.inside)
			<-goOn
		})
	}()
	s.Cleanup(w.resume)
	select {
	case <-w.inside:
	case err := <-w.done:
		s.Fatalf("write to %.40q with token %d ended before it was paused: %v", resource,
			token, err)
	}
	return w
}

// start starts a write that is not paused.
func (s *suite) start(ctx context.Context, resource string, token fence.Token,
	value string) *write {
	w := &write{done: make(chan error, 1)}
	go func() { w.done <- s.Write(ctx, resource, token, value, nil) }()
	return w
}

// settled waits until the write is done, and returns its outcome, or until it waits inside the
// store.
func (s *suite) settled(w *write) (done bool, err error) {
	s.Helper()
	if s.Bubble {
		synctest.Wait()
		select {
		case err := <-w.done:
			return true, err
		default:
			return false, nil
		}
	}
	ctx, cancel := s.limit()
	defer cancel()
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case err := <-w.done:
			return true, err
		case <-ctx.Done():
			s.Fatalf("waited %v in vain for a write to be done, or to wait inside the store",
				s.Patience)
		case <-tick.C:
		}
		if s.Waiting == nil {
			continue
		}
		waiting, err := s.Waiting(ctx)
		if err != nil {
			s.Fatalf("Waiting: %v", err)
		}
		if waiting {
			return false, nil
		}
	}
}

// outcome waits for the end of a write.
func (s *suite) outcome(w *write) error {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		s.Fatalf("waited %v in vain for a write to end", s.Patience)
		return nil
	}
}
