package fencetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
)

// memory is a guarded store, any part of which can be broken.
type memory struct {
	mu     sync.Mutex
	cells  map[string]*cell
	broken mutant
}

type cell struct {
	turn   chan struct{}
	newest fence.Token
	value  string
}

// mutant says what is broken.
type mutant struct {
	name string
	red  []string

	accept    func(token, newest fence.Token) bool
	key       func(resource string) string
	validate  func(resource string, token fence.Token) error
	error     func(resource string, token, newest fence.Token) error
	remember  bool // remembers the token even of a refused write
	writes    bool // writes even if refused
	late      bool // checks after the write
	noTurn    bool // does not serialise
	early     bool // checks before it waits for its turn
	deaf      bool // does not look at contexts
	keeps     bool // keeps the turn when the context ends in the middle
	gives     bool // writes even if its context ended while it waited
	forgets   bool // forgets everything in a crash
	create    bool // creates resources
	creates   bool // creates them by a write, too
	unchanged bool // takes a write that changes nothing for a refusal
	pretends  bool // refuses, and says that it has written
	staleNew  bool // says stale where there is no resource
}

func (m *memory) cell(resource string) *cell {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken.key != nil {
		resource = m.broken.key(resource)
	}
	c := m.cells[resource]
	if c == nil && (!m.broken.create || m.broken.creates) {
		c = &cell{turn: make(chan struct{}, 1)}
		m.cells[resource] = c
	}
	return c
}

func (m *memory) make(_ context.Context, resource string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cells[resource] = &cell{turn: make(chan struct{}, 1)}
	return nil
}

func (m *memory) read(_ context.Context, resource string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken.key != nil {
		resource = m.broken.key(resource)
	}
	if c := m.cells[resource]; c != nil {
		return c.value, nil
	}
	return "", nil
}

func (m *memory) write(ctx context.Context, resource string, token fence.Token, value string,
	pause func()) error {
	validate := fence.Validate
	if m.broken.validate != nil {
		validate = m.broken.validate
	}
	if err := validate(resource, token); err != nil {
		return err
	}
	if m.broken.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c := m.cell(resource)
	if c == nil {
		if m.broken.staleNew {
			return &fence.StaleError{Resource: resource, Token: token}
		}
		return fence.ErrNotFound
	}
	checked := m.broken.early
	if checked {
		if err := m.check(c, resource, token, value); err != nil {
			return err
		}
	}
	if !m.broken.noTurn {
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			if !m.broken.gives {
				return ctx.Err()
			}
			c.turn <- struct{}{}
		}
	}
	leave := func() {
		if !m.broken.noTurn {
			<-c.turn
		}
	}
	if !checked && !m.broken.late {
		if err := m.check(c, resource, token, value); err != nil {
			leave()
			return err
		}
	}
	if pause != nil {
		pause()
	}
	if ctx.Err() != nil && !m.broken.gives {
		if !m.broken.keeps {
			leave()
		}
		return ctx.Err()
	}
	m.set(c, value)
	defer leave()
	if m.broken.late {
		return m.check(c, resource, token, value)
	}
	return nil
}

func (m *memory) set(c *cell, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.value = value
}

// check refuses the token or remembers it.
func (m *memory) check(c *cell, resource string, token fence.Token, value string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	accept := func(token, newest fence.Token) bool { return token >= newest }
	if m.broken.accept != nil {
		accept = m.broken.accept
	}
	newest := c.newest
	ok := accept(token, newest) && !(m.broken.unchanged && token == newest && value == c.value)
	if ok || m.broken.remember {
		c.newest = token
	}
	if ok {
		return nil
	}
	if m.broken.writes {
		c.value = value
	}
	if m.broken.pretends {
		return nil
	}
	if m.broken.error != nil {
		return m.broken.error(resource, token, newest)
	}
	return &fence.StaleError{Resource: resource, Token: token, Newest: newest}
}

func harness(broken mutant) fencetest.Harness {
	return fencetest.Harness{Bubble: true, NewStore: func(testing.TB) fencetest.Store {
		m := &memory{cells: make(map[string]*cell), broken: broken}
		store := fencetest.Store{Write: m.write, Read: m.read, Crash: func(testing.TB) {
			if broken.forgets {
				m.mu.Lock()
				defer m.mu.Unlock()
				for _, c := range m.cells {
					c.newest = 0
				}
			}
		}}
		if broken.create {
			store.Create = m.make
		}
		return store
	}}
}

func mutants() []mutant {
	return []mutant{
		{name: "refuses the same again", red: []string{"Order/AcceptsTheSameAgain",
			"Order/RefusesSmaller"},
			accept: func(token, newest fence.Token) bool { return token > newest }},
		{name: "accepts the one before",
			red: []string{"Order/RefusesSmaller", "Order/ComparesNumbers", "Order/FirstWrite",
				"Order/ResourcesAreApart",
				"Order/RefusalTellsOrIsSilentAboutTheNewest"},
			accept: func(token, newest fence.Token) bool { return token+1 >= newest }},
		{name: "accepts everything",
			red: []string{"Order/RefusesSmaller", "Order/RefusedIsNotRemembered",
				"Concurrency/ManyWriters", "Crash/RefusesAfterwards",
				"Concurrency/NewerThatBeganFirst"},
			accept: func(fence.Token, fence.Token) bool { return true }},
		{name: "wants each token to be the next", red: []string{"Order/AcceptsLarger"},
			accept: func(token, newest fence.Token) bool {
				return token == newest || token == newest+1
			}},
		{name: "compares texts", red: []string{"Order/AcceptsLarger", "Order/ComparesNumbers"},
			accept: func(token, newest fence.Token) bool {
				return newest == 0 || token.String() >= newest.String()
			}},
		{name: "compares 32 bits", red: []string{"Order/AcceptsLarger", "Order/ComparesNumbers"},
			accept: func(token, newest fence.Token) bool {
				return uint32(token) >= uint32(newest)
			}},
		{name: "compares floats of 32 bits",
			red: []string{"Order/ComparesNumbers", "Order/RefusalTellsOrIsSilentAboutTheNewest"},
			accept: func(token, newest fence.Token) bool {
				return float32(token) >= float32(newest)
			}},
		{name: "remembers what it refused", red: []string{"Order/RefusedIsNotRemembered"},
			remember: true},
		{name: "writes what it refuses", red: []string{"Order/RefusesSmaller"}, writes: true},
		{name: "pretends to have written", red: []string{"Order/RefusesSmaller"}, pretends: true},
		{name: "checks after the write",
			red: []string{"Order/RefusesSmaller", "Concurrency/OlderThatBeganFirst"}, late: true},
		{name: "has no lock", red: []string{"Concurrency/OlderThatBeganFirst",
			"Concurrency/OlderThatBeganFirstOnANewResource"}, noTurn: true},
		{name: "checks before it has the lock", red: []string{"Concurrency/NewerThatBeganFirst"},
			early:  true,
			accept: func(token, newest fence.Token) bool { return token+1 >= newest }},
		{name: "one resource", red: []string{"Order/ResourcesAreApart"}, key: func(string) string {
			return ""
		}},
		{name: "ignores case", red: []string{"Order/ResourcesAreApart"}, key: strings.ToLower},
		{name: "ignores space at the end", red: []string{"Order/ResourcesAreApart"},
			key: func(r string) string {
				return strings.TrimRight(r, " ")
			}},
		{name: "cuts long names", red: []string{"Invalid/Names"}, key: func(r string) string {
			return r[:min(len(r), 255)]
		}},
		{name: "accepts any name", red: []string{"Invalid/Names"}, validate: fence.ValidateToken},
		{name: "accepts any token", red: []string{"Invalid/Tokens"},
			validate: func(r string, _ fence.Token) error {
				return fence.Validate(r, 1)
			}},
		{name: "calls an invalid token stale", red: []string{"Invalid/Tokens"},
			validate: func(r string, token fence.Token) error {
				if token == 0 {
					return &fence.StaleError{Resource: r}
				}
				return fence.Validate(r, token)
			}},
		{name: "says something vague", red: []string{"Order/RefusesSmaller"},
			error: func(string, fence.Token, fence.Token) error {
				return errors.New("no")
			}},
		{name: "says not found", red: []string{"Order/RefusesSmaller"},
			error: func(r string, token, _ fence.Token) error {
				return fmt.Errorf("%w: %w", fence.ErrNotFound,
					&fence.StaleError{Resource: r, Token: token})
			}},
		{name: "says only ErrStale", red: []string{"Order/RefusesSmaller"},
			error: func(string, fence.Token, fence.Token) error {
				return fence.ErrStale
			}},
		{name: "names no token", red: []string{"Order/RefusesSmaller"},
			error: func(r string, _, _ fence.Token) error {
				return &fence.StaleError{Resource: r}
			}},
		{name: "names a wrong newest",
			red: []string{"Order/RefusesSmaller", "Order/RefusalTellsOrIsSilentAboutTheNewest"},
			error: func(r string, token, newest fence.Token) error {
				return &fence.StaleError{Resource: r, Token: token, Newest: newest + 1}
			}},
		{name: "takes no change for a refusal", red: []string{"Order/AcceptsTheSameAgain"},
			unchanged: true},
		{name: "looks at no context", red: []string{"Context/EndedBefore"}, deaf: true},
		{name: "keeps its lock when the context ends", red: []string{"Context/EndsInTheMiddle"},
			keeps: true},
		{name: "writes although its context ended while it waited",
			red: []string{"Context/EndsWhileWaiting"}, gives: true},
		{name: "forgets in a crash", red: []string{"Crash/RefusesAfterwards"}, forgets: true},
		{name: "creates what is not there", red: []string{"Order/FirstWrite"}, create: true,
			creates: true},
		{name: "says stale where there is nothing", red: []string{"Order/FirstWrite"}, create: true,
			staleNew: true},
	}
}

// TestExample runs the suite as the example shows it.
func TestExample(test *testing.T) {
	t = test
	ExampleRun()
}

func TestSoundGuardPasses(t *testing.T) {
	t.Run("begins with the first token", func(t *testing.T) { fencetest.Run(t, harness(mutant{})) })
	t.Run("is created", func(t *testing.T) { fencetest.Run(t, harness(mutant{create: true})) })
}

// TestSlowGuardPasses has a store so slow that a rule takes longer than one call may.
func TestSlowGuardPasses(t *testing.T) {
	const patience = time.Second
	slow := harness(mutant{})
	slow.Patience = patience
	sound := slow.NewStore
	slow.NewStore = func(t testing.TB) fencetest.Store {
		store := sound(t)
		write, read := store.Write, store.Read
		store.Write = func(ctx context.Context, resource string, token fence.Token, value string,
			pause func()) error {
			select {
			case <-time.After(patience / 10):
				return write(ctx, resource, token, value, pause)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		store.Read = func(ctx context.Context, resource string) (string, error) {
			select {
			case <-time.After(patience / 20):
				return read(ctx, resource)
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		return store
	}
	fencetest.Run(t, slow)
}

// TestMutantsAreFound sees that the rules do not pass by accident: each of these guards is broken,
// and each of the rules named must say so.
func TestMutantsAreFound(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) { fencetest.Catches(t, harness(m), m.red...) })
	}
}

// TestEveryRuleHasAMutant sees that no rule was added that has never been seen to fail.
func TestEveryRuleHasAMutant(t *testing.T) {
	var shown []string
	for _, m := range mutants() {
		shown = append(shown, m.red...)
	}
	for _, name := range fencetest.Rules() {
		if !slices.Contains(shown, name) {
			t.Errorf("no mutant shows that rule %s can fail", name)
		}
	}
}
