package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
)

var background = context.Background()

const ttl = 10 * time.Second

// stage is a memory, the candidates on it, and what must hold among them. At the end of the bubble
// no goroutine may be left: testing/synctest fails otherwise.
type stage struct {
	t       *testing.T
	memory  *memhold.Backend
	mu      sync.Mutex
	reigns  []*reign // functions that have not returned
	started int      // functions that were called
	last    holdfast.Token
	losses  map[string][]holdfast.Token // whose contexts ended with a LostError
	grace   time.Duration               // the shortest of a candidate

	// excused reports whether a function may lead on beside another; nil: none may
	excused func(*reign) bool
}

// reign is one call of a candidate's function.
type reign struct {
	who   string
	ctx   context.Context
	token holdfast.Token
	ended time.Duration // when the context ended, if it has
}

// play runs f in a bubble.
func play(t *testing.T, f func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, memory: memhold.New(), grace: election.DefaultGrace,
			losses: make(map[string][]holdfast.Token)}
		f(s)
		if len(s.reigns) > 0 {
			t.Errorf("%d functions have not returned; want none", len(s.reigns))
		}
		s.memory.Close()
	})
}

// enter checks, when a function begins, that nobody else leads. The others' contexts must have
// ended, as promised. exit must be called at the function's end.
func (s *stage) enter(who string, ctx context.Context, term election.Term) (exit func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	r := &reign{who: who, ctx: ctx, token: term.Token()}
	s.mustBeAlone(r)
	s.last = max(s.last, r.token)
	s.reigns = append(s.reigns, r)
	unhook := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.ended = now()
		var lost *holdfast.LostError
		if errors.As(context.Cause(ctx), &lost) {
			s.losses[who] = append(s.losses[who], lost.Token)
		}
	})
	return func() {
		unhook()
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.reigns {
			if s.reigns[i] == r {
				s.reigns = append(s.reigns[:i], s.reigns[i+1:]...)
				return
			}
		}
	}
}

// mustBeAlone checks a function that begins. A candidate that does not know yet that it has lost
// the lock may also begin, after the next leader: it may have had the lock for a while, and looked
// for a preferred candidate. The caller holds s.mu.
func (s *stage) mustBeAlone(begins *reign) {
	mayLead := func(r *reign) bool { return s.excused != nil && s.excused(r) }
	if mayLead(begins) {
		return
	}
	for _, r := range s.reigns {
		if r.ctx.Err() == nil && !mayLead(r) {
			s.t.Errorf("%v: %s leads (term %d), and so does %s (term %d)", now(), begins.who,
				begins.token, r.who, r.token)
		}
	}
	if begins.token <= s.last {
		s.t.Errorf("%v: term %d of %s comes after term %d; want a larger one",
			now(), begins.token, begins.who, s.last)
	}
}

// released checks that a lock is not released under a function, unless the grace is over.
func (s *stage) released(e holdfast.ReleasedEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reigns {
		if e.Key == "scheduler" && r.token == e.Token &&
			(r.ctx.Err() == nil || now() < r.ended+s.grace) {
			s.t.Errorf("%v: term %d of %s is released while its function runs", now(), e.Token,
				r.who)
		}
	}
}

// starts returns how many terms there were.
func (s *stage) starts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// leaders are the candidates whose function runs.
func (s *stage) leaders() (who []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reigns {
		who = append(who, r.who)
	}
	return who
}

// mustLead fails the test unless exactly these candidates' functions run.
func (s *stage) mustLead(who ...string) {
	s.t.Helper()
	synctest.Wait()
	got := s.leaders()
	if len(got) != len(who) {
		s.t.Fatalf("%v: %v lead, want %v", now(), got, who)
	}
	for i := range who {
		if got[i] != who[i] {
			s.t.Fatalf("%v: %v lead, want %v", now(), got, who)
		}
	}
}

// begin is when all bubbles begin.
var begin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func now() time.Duration { return time.Since(begin) }

// candidate is one process.
type candidate struct {
	*election.Election
	s      *stage
	name   string
	client *memhold.Backend
	locker *holdfast.Locker
	cancel context.CancelCauseFunc
	ran    chan struct{} // closed when Run has returned
	err    error         // what Run returned
	panic  any           // what it panicked with

	mu     sync.Mutex
	told   []error
	losses map[holdfast.Token]bool // that were told
}

// errBye is the cause with which candidates are cancelled.
var errBye = errors.New("bye")

// candidate makes a process that does not campaign yet.
func (s *stage) candidate(name string, options ...election.Option) *candidate {
	s.t.Helper()
	c := &candidate{s: s, name: name, client: s.memory.Client(),
		losses: make(map[holdfast.Token]bool)}
	var err error
	if c.locker, err = holdfast.New(c.client, holdfast.WithTTL(ttl),
		holdfast.WithHooks(holdfast.Hooks{Released: s.released})); err != nil {
		s.t.Fatal(err)
	}
	c.Election, err = election.New(c.locker, "scheduler", append([]election.Option{
		election.WithIdentity(name), election.WithOnError(c.onError)}, options...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (c *candidate) onError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, err)
	var lost *holdfast.LostError
	if errors.As(err, &lost) {
		c.losses[lost.Token] = true
	}
}

// errors returns what was told since it was last called.
func (c *candidate) errors() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := c.told
	c.told = nil
	return told
}

// run campaigns. lead is what the function does; untilEnd if nil.
func (c *candidate) run(lead func(context.Context, election.Term) error) {
	if lead == nil {
		lead = untilEnd
	}
	ctx, cancel := context.WithCancelCause(background)
	c.cancel, c.ran = cancel, make(chan struct{})
	go func() {
		defer close(c.ran)
		defer func() { c.panic = recover() }()
		c.err = c.Run(ctx, func(ctx context.Context, term election.Term) error {
			defer c.s.enter(c.name, ctx, term)()
			return lead(ctx, term)
		})
	}()
	synctest.Wait()
}

// untilEnd is a function that leads until it is told to end.
func untilEnd(ctx context.Context, _ election.Term) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// mustEnd waits until Run has returned.
func (c *candidate) mustEnd() {
	c.s.t.Helper()
	select {
	case <-c.ran:
	case <-time.After(time.Hour):
		c.s.t.Fatalf("Run of %s does not return", c.name)
	}
}

// leave ends the candidate.
func (c *candidate) leave() {
	if c.cancel != nil {
		c.cancel(errBye)
		c.mustEnd()
	}
	c.locker.Close()
	c.client.Close()
	synctest.Wait()
	for _, token := range c.s.lossesOf(c.name) {
		if !c.losses[token] {
			c.s.t.Errorf("nobody was told that %s has lost term %d", c.name, token)
		}
	}
}

// lossesOf returns the terms that a candidate has lost, and forgets them.
func (s *stage) lossesOf(name string) []holdfast.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.losses[name]
	delete(s.losses, name)
	return lost
}

// mustTell fails the test unless exactly one error was told, which is of this kind.
func (c *candidate) mustTell(want error) {
	c.s.t.Helper()
	synctest.Wait()
	told := c.errors()
	if len(told) != 1 || !errors.Is(told[0], want) {
		c.s.t.Errorf("%s told %v, want one error that is: %v", c.name, told, want)
	}
}

// mustTellNothing fails the test if an error was told.
func (c *candidate) mustTellNothing() {
	c.s.t.Helper()
	synctest.Wait()
	if told := c.errors(); len(told) > 0 {
		c.s.t.Errorf("%s told %v, want nothing", c.name, told)
	}
}
