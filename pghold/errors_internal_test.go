package pghold

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

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

// overSQL returns a Backend over database/sql, with a driver that connects to no server.
func overSQL(t *testing.T, connector sqldriver.Connector) *Backend {
	t.Helper()
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	b, err := NewSQL(db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	b.matched.Store(true)
	return b
}

func TestOutcomeOverADriverThatLies(t *testing.T) {
	b := overSQL(t, lying{})
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
		if other := errors.New("refused"); lacking(other, lacked) != other {
			t.Errorf("an error before that time is told as %v", lacking(other, lacked))
		}
	}
}

// refused is an error of the server, with its SQLSTATE, as drivers other than pgx give it.
type refused string

func (r refused) Error() string    { return "the server says " + string(r) }
func (r refused) SQLState() string { return string(r) }

// What the error of a change says, for each that the server may answer with: whether the change may
// have happened, and whether the same request fails until somebody changes something.
func TestErrorsOfTheServer(t *testing.T) {
	type meaning struct {
		maybe, permanent bool
		is               error
	}
	for what, codes := range map[meaning][]refused{
		{false, false, nil}:       {"57014", "55P03", "40001", "40P01", "53300", "57P03", "57P05"},
		{true, false, nil}:        {"57P01", "57P02", "08006", "08P01"},
		{false, true, nil}:        {"28000", "28P01", "3D000", "42601", "25000", "0A000", "22023"},
		{false, true, ErrMissing}: {"42P01", "42883", "3F000", "42703", "42704"},
		{false, true, ErrRights}:  {"42501"},
	} {
		for _, code := range codes {
			b := &Backend{}
			err := b.failure(code, true)
			if err.Maybe != what.maybe || err.Permanent != what.permanent ||
				!errors.Is(err, code) || what.is != nil && !errors.Is(err, what.is) {
				t.Errorf("%s: %v, maybe %v, permanent %v; want %+v", code, err, err.Maybe,
					err.Permanent, what)
			}
			if err := b.failure(code, false); err.Maybe {
				t.Errorf("%s to a question: %v; want that nothing was done", code, err)
			}
		}
	}
}

// A server that takes no writes fails for good, unless it has taken some: then another one may take
// over.
func TestServerThatTakesNoWrites(t *testing.T) {
	b := &Backend{}
	if err := b.failure(refused("25006"), true); err.Maybe || !err.Permanent {
		t.Errorf("before a write: %v, maybe %v, permanent %v", err, err.Maybe, err.Permanent)
	}
	b.wrote.Store(true)
	if err := b.failure(refused("25006"), true); err.Maybe || err.Permanent {
		t.Errorf("after a write: %v, maybe %v, permanent %v", err, err.Maybe, err.Permanent)
	}
}

// A login that is refused, or has no answer, has changed nothing. Whether it will be refused again
// depends on the reason. The error does not tell who wanted to log in.
func TestErrorsOfALogin(t *testing.T) {
	for code, permanent := range map[string]bool{"28000": true, "28P01": true, "3D000": true,
		"42501": true, "53300": false, "57P03": false, "": false} {
		config, err := pgconn.ParseConfig("postgres://s3cret@127.0.0.1/d?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go refuseLogin(server, code)
			return client, nil
		}
		_, err = pgconn.ConnectConfig(t.Context(), config)
		if err == nil {
			t.Fatal("it is connected")
		}
		e := new(Backend).failure(err, true)
		if e.Maybe || e.Permanent != permanent || state(e) != code ||
			strings.Contains(e.Error(), "s3cret") {
			t.Errorf("%q: %v, maybe %v, permanent %v; want permanent %v", code, e, e.Maybe,
				e.Permanent, permanent)
		}
	}
}

// refuseLogin is a server that refuses who logs in with an error, or hangs up if there is no code.
func refuseLogin(conn net.Conn, code string) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil || code == "" {
		return
	}
	b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code})
	b.Flush()
}

// refusing is a driver whose connections answer everything with an error.
type refusing struct {
	with   error
	closed *int
}

func (r refusing) Connect(context.Context) (sqldriver.Conn, error) { return r, nil }
func (r refusing) Driver() sqldriver.Driver                        { return nil }
func (r refusing) Prepare(string) (sqldriver.Stmt, error)          { return nil, r.with }
func (r refusing) Begin() (sqldriver.Tx, error)                    { return nil, r.with }

func (r refusing) Close() error {
	*r.closed++
	return nil
}

// A connection is given up if its server serves no locks any more, so that the next request looks
// for another server. After any other error it stays.
func TestConnectionToAServerThatWasReplaced(t *testing.T) {
	for code, want := range map[refused]int{"25006": 1, "57P01": 1, "57P02": 1, "57P03": 1,
		"57014": 0} {
		closed := 0
		b := overSQL(t, refusing{code, &closed})
		if _, err := b.Acquire(t.Context(), claimFor("k", "owner")); !errors.Is(err, code) {
			t.Errorf("Acquire: %v; want %v", err, code)
		}
		if closed != want {
			t.Errorf("after %s %d connections are closed; want %d", code, closed, want)
		}
	}
}

// unsent is the error of a driver that has sent nothing, as that of pgx says.
type unsent struct{ error }

func (unsent) SafeToRetry() bool { return true }

// A request that database/sql could not send has had no effect. If it waits for a connection in
// vain, the pool is only called used up if it has a bound.
func TestRequestThatDatabaseSQLCannotSend(t *testing.T) {
	b := overSQL(t, refusing{unsent{errors.New("broken")}, new(int)})
	if _, err := b.Acquire(t.Context(), claimFor("k", "owner")); !errors.Is(err,
		driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) {
		t.Errorf("Acquire: %v; want %v", err, driver.ErrUnavailable)
	}
	if want := b.db.want(); want != errConnection {
		t.Errorf("a pool without a bound lacks %q; want %q", want, errConnection)
	}
}

// An error tells once, in one line, what is told of each of several servers, and not the user of
// the URL.
func TestDiscreetError(t *testing.T) {
	b := &Backend{}
	b.config.user = "s3cret"
	err := b.discreet(errors.New("\ta: refused (user=s3cret database=d)\n\n\ta: refused " +
		"(user=s3cret database=d)\n\tb: no role \"s3cret\""))
	if want := `a: refused (user=... database=d); b: no role "..."`; err.Error() != want {
		t.Errorf("%q; want %q", err, want)
	}
	for _, text := range []string{`Rolle »s3cret« existiert nicht`, `no existe el rol «s3cret»`,
		"le rôle «\u00a0s3cret\u00a0» n'existe pas", "le rôle « s3cret » n'existe pas"} {
		if got := b.discreet(errors.New(text)).Error(); strings.Contains(got, "s3cret") {
			t.Errorf("%q tells the user", got)
		}
	}
	for user, text := range map[string]string{"s3cret\nx": "no role \"s3cret\nx\"",
		strings.Repeat("s3cret", 11): `no role "` + strings.Repeat("s3cret", 11)[:63] + `"`} {
		b.config.user = user
		if got := b.discreet(errors.New(text)).Error(); got != `no role "..."` {
			t.Errorf("%q; want that it hides the user", got)
		}
	}
	b.config.user = ""
	const plain = `the "" and user= x`
	if err := b.discreet(errors.New(plain)); err.Error() != plain {
		t.Errorf("%q; want %q", err, plain)
	}
}
