package pghold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Guard has the server refuse claims for the guard after it may have lost data, as driver.Guarder
// describes: after every restart, after a crash, and as a standby that has taken over. An unlogged
// table, which PostgreSQL empties just then, tells so. Only [WithDurable] exempts a server. See the
// package for a server into which older tables are loaded.
func (b *Backend) Guard(guard time.Duration) { b.guard.Store(int64(guard)) }

// underGuard returns an error for a TTL that is longer than the guard.
func (b *Backend) underGuard(ttl time.Duration) error {
	if guard := time.Duration(b.guard.Load()); guard > 0 && ttl > guard {
		return refuse("TTL %v: at most the restart guard of %v is allowed", ttl, guard)
	}
	return nil
}

// terms are what a claim comes under: the guard in microseconds, and the set of nodes.
func (b *Backend) terms() (guard int64, member string) {
	if !b.config.durable {
		guard = microseconds(time.Duration(b.guard.Load()))
	}
	if want := b.want.Load(); want != nil {
		member = want.Text()
	}
	return guard, member
}

// refusal returns the error for the state of an answer in which the server takes no part.
func (b *Backend) refusal(state string, remaining int64, belongs string) error {
	switch state {
	case "held", "busy":
		return nil
	case "quarantine":
		return &driver.Error{Node: b.name, Err: &driver.QuarantineError{Remaining: span(remaining),
			Reason: "it is new, was restarted, or has taken over"}}
	case "set":
		have, err := driver.ParseSet(belongs)
		if err != nil {
			return &driver.Error{Node: b.name, Permanent: true, Err: err}
		}
		e := &driver.SetError{Have: have}
		if want := b.want.Load(); want != nil {
			e.Want = *want
		}
		return &driver.Error{Node: b.name, Permanent: true, Err: e}
	}
	return &driver.Error{Node: b.name, Maybe: true,
		Err: fmt.Errorf("unexpected answer: %.40q", state)}
}

// Join puts all claims under the set, as driver.Member describes. Each request then carries it, so
// it costs no round trip.
func (b *Backend) Join(set driver.Set) {
	if set == (driver.Set{}) {
		b.want.Store(nil)
		return
	}
	b.want.Store(&set)
}

// Belongs returns the set that the database remembers, as driver.Member describes. ctx bounds the
// wait. It fails with ErrUnavailable.
func (b *Backend) Belongs(ctx context.Context) (driver.Set, error) {
	return b.set(ctx, false, "SELECT member FROM holdfast.server")
}

// Move has the database remember another set, as driver.Member describes. ctx bounds the wait, not
// the request. It fails with ErrUnavailable, or with ErrUnknown if no answer came.
func (b *Backend) Move(ctx context.Context, from, to driver.Set) (driver.Set, error) {
	if err := b.writes(); err != nil {
		return driver.Set{}, err
	}
	return b.set(ctx, true, "SELECT holdfast.move($1::text, $2::text)", from.Text(), to.Text())
}

func (b *Backend) set(ctx context.Context, effect bool, statement string,
	args ...any) (driver.Set, error) {
	text, err := aside(ctx, b, effect, func(ctx context.Context) (text string, err error) {
		err = b.query(ctx, effect, statement, args, func(scan func(...any) error) error {
			return scan(&text)
		})
		return text, err
	})
	if err != nil {
		return driver.Set{}, err
	}
	set, err := driver.ParseSet(text)
	if err != nil {
		return driver.Set{}, &driver.Error{Node: b.name, Permanent: true, Err: err}
	}
	return set, nil
}

// Identity returns a value for this run of this server: its system identifier and when it was
// started. ctx bounds the wait. It fails with ErrUnavailable.
func (b *Backend) Identity(ctx context.Context) (string, error) {
	type names struct{ identity, version string }
	found, err := aside(ctx, b, false, func(ctx context.Context) (n names, err error) {
		err = b.query(ctx, false, "SELECT (pg_control_system()).system_identifier || '/' || "+
			"(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, "+
			"split_part(current_setting('server_version'), ' ', 1)", nil,
			func(scan func(...any) error) error { return scan(&n.identity, &n.version) })
		if err == nil && n.identity == "" {
			err = &driver.Error{Node: b.name, Err: errors.New("the server has no identity")}
		}
		return n, err
	})
	if err != nil {
		return "", err
	}
	b.version.Store(&found.version)
	return found.identity, nil
}

// Version returns the version of the server, as driver.Versioner describes.
func (b *Backend) Version() string {
	if v := b.version.Load(); v != nil {
		return *v
	}
	return ""
}
