package pghold

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// database is a pool of connections.
type database interface {
	// query runs one statement and calls row for each row of its answer. sent says whether the
	// server may have got it.
	query(ctx context.Context, statement string, args []any,
		row func(scan func(...any) error) error) (sent bool, err error)

	// want says what a request lacks that waits for a connection.
	want() error

	// close gives up what the Backend has opened itself.
	close()
}

// What a request lacks that has waited for a connection in vain.
var (
	errConnection = errors.New("no connection was ready")
	errExhausted  = errors.New("every connection that the pool may have is in use: " +
		"if the server answers, let the pool have more, or give the locks a pool of their own")
)

// lacking adds to the error of a wait for a connection what was lacking.
func lacking(err, want error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", want, err)
	}
	return err
}

// pgxDatabase is a pool of pgx.
type pgxDatabase struct {
	pool  *pgxpool.Pool
	links *links // nil if the pool is the application's
	mode  pgx.QueryExecMode
	plain atomic.Bool // mode does not do
}

func newPgxDatabase(pool *pgxpool.Pool, links *links) *pgxDatabase {
	mode := pool.Config().ConnConfig.DefaultQueryExecMode
	if mode == pgx.QueryExecModeDescribeExec { // which takes two round trips
		mode = pgx.QueryExecModeExec
	}
	return &pgxDatabase{pool: pool, links: links, mode: mode}
}

// query uses statements that are prepared once for a connection, if the pool does so. That halves
// the server's work. If a pooler has put another process of the server on the connection by then,
// that process says so before it does anything, and from then on nothing is prepared or described.
// Either way it is one round trip.
func (d *pgxDatabase) query(ctx context.Context, statement string, args []any,
	row func(scan func(...any) error) error) (sent bool, err error) {
	mode := d.mode
	if d.plain.Load() {
		mode = pgx.QueryExecModeExec
	}
	sent, err = d.once(ctx, mode, statement, args, row)
	if code := state(err); mode != pgx.QueryExecModeExec && (code == "26000" || code == "42P05") {
		d.plain.Store(true)
		return d.once(ctx, pgx.QueryExecModeExec, statement, args, row)
	}
	return sent, err
}

// greet finds out whether there is a pooler. If there is, nothing is prepared.
func (d *pgxDatabase) greet(ctx context.Context) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	pooled, err := behindPooler(ctx, conn.Conn())
	if pooled {
		d.plain.Store(true)
	}
	return err
}

func (d *pgxDatabase) once(ctx context.Context, mode pgx.QueryExecMode, statement string,
	args []any, row func(scan func(...any) error) error) (sent bool, err error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return false, lacking(err, d.want())
	}
	defer conn.Release()
	if err := maySend(ctx); err != nil {
		return false, err
	}
	if mode == pgx.QueryExecModeSimpleProtocol && !simple(conn.Conn().PgConn()) {
		mode = pgx.QueryExecModeExec
	}
	rows, err := conn.Query(ctx, statement, append([]any{mode}, args...)...)
	if err == nil {
		for err == nil && rows.Next() {
			err = row(rows.Scan)
		}
		rows.Close()
		if failure := rows.Err(); failure != nil {
			err = failure
		}
	}
	if elsewhere(err) {
		// Another server may have taken over: the next request looks for it.
		_ = conn.Conn().Close(ctx)
	}
	return !pgconn.SafeToRetry(err), err
}

func (d *pgxDatabase) want() error {
	if s := d.pool.Stat(); s.AcquiredConns() >= s.MaxConns() {
		return errExhausted
	}
	return errConnection
}

// simple reports whether pgx writes values into the text of a statement for this session. It
// refuses to do so if the server might read them in another way.
func simple(conn *pgconn.PgConn) bool {
	return conn.ParameterStatus("standard_conforming_strings") == "on" &&
		conn.ParameterStatus("client_encoding") == "UTF8"
}

// close leaves the server in an orderly way if it answers.
func (d *pgxDatabase) close() {
	if d.links == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		d.pool.Close()
	}()
	timer := time.NewTimer(closing)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
	d.links.close()
	<-closed
}

// unhexed is bytes that the server sends as hexadecimal digits. How the server writes a bytea by
// itself is a setting, bytea_output, and pgx reads only one of its forms.
type unhexed string

// Scan implements sql.Scanner.
func (u *unhexed) Scan(from any) error {
	var digits string
	switch from := from.(type) {
	case string:
		digits = from
	case []byte:
		digits = string(from)
	case nil:
	default:
		return fmt.Errorf("hexadecimal digits as a %T", from)
	}
	bytes, err := hex.DecodeString(digits)
	*u = unhexed(bytes)
	return err
}

// closing is how long a server has to answer when its connections are closed.
const closing = 250 * time.Millisecond

// sqlDatabase is a pool of database/sql.
type sqlDatabase struct{ db *sql.DB }

func (d sqlDatabase) query(ctx context.Context, statement string, args []any,
	row func(scan func(...any) error) error) (sent bool, err error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return false, lacking(err, d.want())
	}
	defer conn.Close()
	if err := maySend(ctx); err != nil {
		return false, err
	}
	rows, err := conn.QueryContext(ctx, statement, args...)
	if err == nil {
		for err == nil && rows.Next() {
			err = row(rows.Scan)
		}
		if failure := errors.Join(rows.Close(), rows.Err()); failure != nil {
			err = failure
		}
	}
	if elsewhere(err) {
		_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // closes it
	}
	// ErrBadConn should mean that nothing was sent, but lib/pq returns it for a lost answer, too.
	return !pgconn.SafeToRetry(err), err
}

func (d sqlDatabase) want() error {
	if s := d.db.Stats(); s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return errExhausted
	}
	return errConnection
}

func (d sqlDatabase) close() {}
