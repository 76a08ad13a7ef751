package cost

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

// TTL is the lease of the locks. A lock that is left when this process is killed ends after it.
const TTL = 10 * time.Second

// Options bound a measurement.
type Options struct {
	Prefix   string        // of all keys of the backend
	Count    int           // how often each thing is done at most
	Time     time.Duration // for how long they are done at most; each is done once at least
	Patience time.Duration // how long the backend may take for one
}

// Measure measures three things: a request that only reads, an acquisition with its release, and
// the time from a release until a waiter has the lock. It uses two clients of one backend, as two
// processes would, and keys of its own. They are free when it returns, unless the backend does not
// answer. If ctx ends, its cause is the error.
func Measure(ctx context.Context, backends [2]driver.Backend, o Options) (samples []Sample,
	err error) {
	m := measurement{Options: o, ctx: ctx, name: "holdfast-bench/" + rand.Text()}
	for i, b := range backends {
		c := &client{waits: make(chan struct{}, 1)}
		c.locker, err = holdfast.New(b, holdfast.WithTTL(TTL), holdfast.WithPrefix(o.Prefix),
			holdfast.WithLabel("holdfast bench"), holdfast.WithHooks(holdfast.Hooks{
				Waiting: func(holdfast.WaitingEvent) { c.tell() },
			}))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, closeLocker(c.locker)) }()
		m.clients[i] = c
	}
	inspector, ok := backends[0].(driver.Inspector)
	if !ok {
		return nil, errors.New("the backend cannot show its locks, so no request only reads")
	}
	return m.repeat([]part{
		{"round trip", func() (time.Duration, error) { return m.trip(inspector) }},
		{"pair", m.pair},
		{"handoff", m.handoff},
	})
}

// errNotWaited says that a lock was granted while it was held, by what this process knows.
var errNotWaited = errors.New("a lock that is held was granted to another client")

// closeLocker frees what the Locker holds.
func closeLocker(l *holdfast.Locker) error {
	if err := l.Close(); err != nil {
		return fmt.Errorf("%w; what is left ends within %v", err, TTL)
	}
	return nil
}

// part is something that is measured. It returns what it took.
type part struct {
	what string
	once func() (time.Duration, error)
}

// repeat does all parts in turns, so that the machine and the network disturb all of them alike.
// The first turn does not count, because it also costs scripts and connections.
func (m *measurement) repeat(parts []part) ([]Sample, error) {
	samples := make([]Sample, len(parts))
	begin := time.Now()
	for turn := 0; turn <= m.Count; turn++ {
		for i, p := range parts {
			took, err := p.once()
			if err != nil {
				return nil, m.cause(p.what, err)
			}
			samples[i].What = p.what
			if turn > 0 {
				samples[i].Took = append(samples[i].Took, took)
			}
		}
		if turn > 0 && time.Since(begin) >= m.Time {
			break
		}
	}
	for _, s := range samples {
		slices.Sort(s.Took)
	}
	return samples, nil
}

// measurement is a call of Measure.
type measurement struct {
	Options
	ctx     context.Context
	name    string
	clients [2]*client
	held    *holdfast.Lock // by clients[0], between two handoffs
}

// client is one of two that want the same lock.
type client struct {
	locker *holdfast.Locker
	waits  chan struct{} // a token each time that it begins to wait
}

func (c *client) tell() {
	select {
	case c.waits <- struct{}{}:
	default:
	}
}

// cause says what has failed, or why it was ended.
func (m *measurement) cause(what string, err error) error {
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// trip asks for a key that nobody holds.
func (m *measurement) trip(b driver.Inspector) (time.Duration, error) {
	begin := time.Now()
	_, err := look.Bounded(m.ctx, m.Patience, func(ctx context.Context) (driver.Entry, error) {
		return b.Inspect(ctx, m.Prefix+m.name)
	})
	return time.Since(begin), err
}

// pair acquires and releases a lock that nobody else wants.
func (m *measurement) pair() (time.Duration, error) {
	ctx, cancel := context.WithTimeout(m.ctx, m.Patience)
	defer cancel()
	begin := time.Now()
	lock, err := m.clients[0].locker.TryAcquire(ctx, m.name+"/pair")
	if err != nil {
		return 0, err
	}
	err = lock.Release(ctx)
	return time.Since(begin), err
}

// handoff releases a lock that the other client waits for, and measures until that has it. Then the
// two change places.
func (m *measurement) handoff() (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(m.ctx, m.Patience)
	defer cancel()
	holder, waiter := m.clients[0], m.clients[1]
	if m.held == nil {
		if m.held, err = holder.locker.TryAcquire(ctx, m.name+"/handoff"); err != nil {
			return 0, err
		}
	}
	type granted struct {
		lock *holdfast.Lock
		at   time.Time
		err  error
	}
	got := make(chan granted, 1)
	go func() {
		lock, err := waiter.locker.Acquire(ctx, m.name+"/handoff")
		got <- granted{lock, time.Now(), err}
	}()
	select {
	case <-waiter.waits:
	case g := <-got: // it failed, or the lock was lost
		return 0, cmp.Or(g.err, m.held.Err(), errNotWaited)
	}
	begin := time.Now()
	released := m.held.Release(ctx)
	g := <-got
	if released != nil || g.err != nil {
		return 0, cmp.Or(released, g.err)
	}
	m.held = g.lock
	m.clients[0], m.clients[1] = waiter, holder
	for _, c := range m.clients { // it may have been told twice
		select {
		case <-c.waits:
		default:
		}
	}
	return g.at.Sub(begin), nil
}
