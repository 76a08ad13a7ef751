package pghold

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// answering is a database that gives one answer to everything.
type answering struct {
	answer []any // a row
	args   []any // of the last statement; nil if none was sent
}

func (d *answering) query(_ context.Context, _ string, args []any,
	row func(scan func(...any) error) error) (sent bool, err error) {
	d.args = args
	if d.answer == nil {
		return true, errors.New("it has no answer")
	}
	return true, row(func(values ...any) error {
		for i, v := range values {
			switch v := v.(type) {
			case *string:
				*v = d.answer[i].(string)
			case *int64:
				*v = int64(d.answer[i].(int))
			case *unhexed:
				*v = unhexed(d.answer[i].(string))
			}
		}
		return nil
	})
}

func (d *answering) want() error { return errConnection }
func (d *answering) close()      {}

// over returns a Backend with that database.
func over(t *testing.T, d database, c config) *Backend {
	c.quiet, c.presence = true, Presence
	b := newBackend(d, "fake", c)
	b.matched.Store(true)
	t.Cleanup(func() { b.Close() })
	return b
}

// A claim that is not allowed is not sent.
func TestClaimsThatAreNotAllowed(t *testing.T) {
	good, long := claimFor("k", "owner"), strings.Repeat("x", driver.MaxKeyLen+maxOwner)
	for what, spoil := range map[string]func(*driver.Claim){
		"no key":               func(c *driver.Claim) { c.Key = "" },
		"a long key":           func(c *driver.Claim) { c.Key = long[:driver.MaxKeyLen+1] },
		"no owner":             func(c *driver.Claim) { c.Owner = "" },
		"a long owner":         func(c *driver.Claim) { c.Owner = long[:maxOwner+1] },
		"a short TTL":          func(c *driver.Claim) { c.TTL = time.Millisecond - 1 },
		"a long TTL":           func(c *driver.Claim) { c.TTL = driver.MaxTTL + 1 },
		"a large token":        func(c *driver.Claim) { c.Token = maxExact },
		"a large block":        func(c *driver.Claim) { c.Block = maxExact },
		"a large sum":          func(c *driver.Claim) { c.Token, c.Block = maxExact-1, 1 },
		"a large ticket":       func(c *driver.Claim) { c.Ticket = maxExact },
		"a TTL over the guard": func(c *driver.Claim) { c.TTL = time.Hour },
	} {
		c := good
		spoil(&c)
		d := new(answering)
		b := over(t, d, config{})
		b.Guard(time.Minute)
		calls := map[string]func() error{"Acquire": func() error {
			_, err := b.Acquire(t.Context(), c)
			return err
		}}
		if c.Key != good.Key || c.Owner != good.Owner { // a release needs no more
			calls["Release"] = func() error {
				_, err := b.Release(t.Context(), c)
				return err
			}
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, driver.ErrInvalid) || d.args != nil {
				t.Errorf("%s with %s: %v, sent: %v; want %v, and nothing is sent", name, what, err,
					d.args != nil, driver.ErrInvalid)
			}
		}
	}
}

// A Backend that only reads sends nothing that would change something.
func TestReadOnlySendsNoChange(t *testing.T) {
	d := new(answering)
	b := over(t, d, config{readOnly: true})
	c := claimFor("k", "owner")
	_, acquired := b.Acquire(t.Context(), c)
	_, released := b.Release(t.Context(), c)
	_, renewed := b.Renew(t.Context(), []driver.Claim{c})
	for name, err := range map[string]error{"Acquire": acquired, "Release": released,
		"Renew": renewed} {
		if !errors.Is(err, ErrReadOnly) || d.args != nil {
			t.Errorf("%s: %v, sent: %v; want %v, and nothing is sent", name, err, d.args != nil,
				ErrReadOnly)
		}
	}
}

// What a claim sends of its place in the queue and of its presence, and what the answers mean.
func TestWhatAClaimSends(t *testing.T) {
	const presence, ticket, listening = 3, 6, 9 // of the arguments
	for _, test := range []struct {
		queue   bool
		ttl     time.Duration
		ticket  any
		present time.Duration
	}{
		{false, time.Hour, nil, Presence},
		{true, time.Hour, int64(7), Presence},
		{true, time.Second, int64(7), time.Second},
	} {
		d := &answering{answer: []any{"busy", 0, "other", 5, 0, 9, ""}}
		b := over(t, d, config{})
		c := claimFor("k", "owner")
		c.Queue, c.TTL, c.Ticket = test.queue, test.ttl, 7
		r, err := b.Acquire(t.Context(), c)
		if want := (driver.Result{State: driver.Busy, Holder: "other",
			ExpiresIn: 5 * time.Microsecond}); err != nil || r != want {
			t.Errorf("busy without a place: %+v, %v; want %+v", r, err, want)
		}
		if d.args[ticket] != test.ticket || d.args[presence] != microseconds(test.present) {
			t.Errorf("%+v sends the ticket %v and a presence of %v", test, d.args[ticket],
				d.args[presence])
		}
		if d.args[listening] != false {
			t.Error("it says that it listens, and it does not")
		}
		d.answer[4] = 1
		r, err = b.Acquire(t.Context(), c)
		if err != nil || r.Place != 1 || r.Presence != test.present || r.Clock != 9 {
			t.Errorf("busy at a place: %+v, %v; want a presence of %v", r, err, test.present)
		}
	}
}

// An answer with notices tells them, and one that is no answer leaves the outcome open.
func TestWhatAnAnswerMeans(t *testing.T) {
	const notice = "3 1 77 6b\n" // token, block, owner and key
	c := claimFor("k", "owner")
	for name, test := range map[string]struct {
		answer func(state string) []any
		call   func(*Backend) error
	}{
		"Acquire": {
			func(state string) []any { return []any{state, 2, "", 0, 0, 0, notice} },
			func(b *Backend) error {
				_, err := b.Acquire(context.Background(), c)
				return err
			},
		},
		"Release": {
			func(state string) []any { return []any{state, notice} },
			func(b *Backend) error {
				_, err := b.Release(context.Background(), c)
				return err
			},
		},
	} {
		d := &answering{answer: test.answer("held")}
		b := over(t, d, config{})
		var told []driver.Notice
		defer b.Notify(func(n driver.Notice) { told = append(told, n) })()
		if err := test.call(b); err != nil || len(told) != 1 || told[0].Owner != "w" ||
			told[0].Token != 3 {
			t.Errorf("%s: %v, and %+v is told", name, err, told)
		}
		d.answer = test.answer("something else")
		if err := test.call(b); !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("%s with an answer of another kind: %v; want %v", name, err, driver.ErrUnknown)
		}
	}
	d := &answering{answer: []any{"quarantine", 0, "", 4, 0, 0, ""}}
	var quarantine *driver.QuarantineError
	if _, err := over(t, d, config{}).Acquire(t.Context(), c); !errors.As(err, &quarantine) ||
		quarantine.Remaining != 4*time.Microsecond || errors.Is(err, driver.ErrUnknown) {
		t.Errorf("Acquire in quarantine: %v", err)
	}
}
