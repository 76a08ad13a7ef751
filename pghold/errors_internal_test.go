package pghold

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

// A server that shuts down during a request leaves the outcome of a change open, and none of a
// question.
func TestOutcomeOfAShutdown(t *testing.T) {
	b := &Backend{}
	for effect, want := range map[bool]error{true: driver.ErrUnknown,
		false: driver.ErrUnavailable} {
		if err := b.failure(&pgconn.PgError{Code: "57P01"}, effect); !errors.Is(err, want) {
			t.Errorf("effect %v: %v; want %v", effect, err, want)
		}
	}
}

// A server that fails while it commits ends the connection, whatever the code says: the commit may
// be on its disk. Any other error of a statement rolled it back.
func TestOutcomeOfACommitThatFails(t *testing.T) {
	b := &Backend{}
	for severity, want := range map[string]error{"PANIC": driver.ErrUnknown,
		"FATAL": driver.ErrUnknown, "ERROR": driver.ErrUnavailable} {
		err := b.failure(&pgconn.PgError{Severity: severity, SeverityUnlocalized: severity,
			Code: "53100"}, true)
		unknown := errors.Is(err, driver.ErrUnknown)
		if !errors.Is(err, want) || unknown != (want == driver.ErrUnknown) {
			t.Errorf("%s: %v; want %v", severity, err, want)
		}
	}
}

// A server that ends a connection because nobody used it has executed nothing of what it then finds
// there. Over TCP its error is read as the answer to that.
func TestOutcomeAfterAnIdleSession(t *testing.T) {
	b := &Backend{}
	err := b.failure(&pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL",
		Code: "57P05"}, true)
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) {
		t.Errorf("%v; want %v", err, driver.ErrUnavailable)
	}
}

// lying is a driver that says of a statement that it sent that its connection was broken before, as
// lib/pq does when the answer did not come.
type lying struct{ sqldriver.Conn }

func (l lying) Connect(context.Context) (sqldriver.Conn, error) { return l, nil }
func (l lying) Driver() sqldriver.Driver                        { return nil }
func (l lying) Close() error                                    { return nil }

func (l lying) QueryContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Rows,
	error) {
	return nil, sqldriver.ErrBadConn
}

func TestOutcomeOverADriverThatLies(t *testing.T) {
	db := sql.OpenDB(lying{})
	defer db.Close()
	b, err := NewSQL(db)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.matched.Store(true)
	if _, err := b.Acquire(t.Context(), claimFor("k", "owner")); !errors.Is(err,
		driver.ErrUnknown) {
		t.Errorf("Acquire: %v; want %v", err, driver.ErrUnknown)
	}
	if _, err := b.Inspect(t.Context(), "k"); errors.Is(err, driver.ErrUnknown) {
		t.Errorf("Inspect: %v; a question has no unknown outcome", err)
	}
}

// A request that found no connection in time says what it waited for, and not that no answer came.
func TestErrorOfAWaitForAConnection(t *testing.T) {
	b := &Backend{}
	for _, lacked := range []error{errExhausted, errConnection} {
		err := b.failure(lacking(context.DeadlineExceeded, lacked), false)
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) ||
			!errors.Is(err, lacked) || !strings.Contains(err.Error(), "waited "+patience.String()) {
			t.Errorf("%v; want %v, after %v", err, lacked, patience)
		}
	}
}

// standby is a driver for a server that takes no writes any more, which the error says as that of
// each driver does.
type standby struct{ closed *int }

func (s standby) Connect(context.Context) (sqldriver.Conn, error) { return s, nil }
func (s standby) Driver() sqldriver.Driver                        { return nil }
func (s standby) Prepare(string) (sqldriver.Stmt, error)          { return nil, readOnly{} }
func (s standby) Begin() (sqldriver.Tx, error)                    { return nil, readOnly{} }

func (s standby) Close() error {
	*s.closed++
	return nil
}

type readOnly struct{}

func (readOnly) Error() string    { return "cannot execute UPDATE in a read-only transaction" }
func (readOnly) SQLState() string { return "25006" }

// A connection to a server that serves no locks any more is given up, so that the next request
// looks for another server.
func TestConnectionToAServerThatWasReplaced(t *testing.T) {
	closed := 0
	db := sql.OpenDB(standby{&closed})
	defer db.Close()
	b, err := NewSQL(db)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.matched.Store(true)
	if _, err := b.Acquire(t.Context(), claimFor("k", "owner")); !errors.Is(err,
		driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) {
		t.Errorf("Acquire: %v; want %v", err, driver.ErrUnavailable)
	}
	if closed != 1 {
		t.Errorf("%d connections are closed; want 1", closed)
	}
}
