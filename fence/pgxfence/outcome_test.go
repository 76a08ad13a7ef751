package pgxfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
)

// answering is a database that answers a statement with an error.
type answering struct {
	pgxfence.Queryer
	err error
}

func (a answering) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, a.err
}

// TestCodes has errors whose codes say that the outcome of the statement is unknown, that the
// database does not serve, or that the caller made a mistake.
func TestCodes(t *testing.T) {
	for code, want := range map[string]error{
		"08007": fence.ErrUnknown,     // transaction resolution unknown
		"40003": fence.ErrUnknown,     // CockroachDB: result is ambiguous
		"08P01": fence.ErrUnknown,     // PgBouncer, when the server goes away under a statement
		"08006": fence.ErrUnknown,     // other poolers
		"08001": fence.ErrUnavailable, // cannot connect
		"57P03": fence.ErrUnavailable, // the database system is starting up
		"53300": fence.ErrUnavailable, // too many connections
		"25006": fence.ErrUnavailable, // a replica
		"40001": nil,
		"23505": nil,
		"22P02": nil, // a refusal has this code, too
	} {
		answer := fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: "ERROR", Code: code})
		err := pgxfence.Column{Table: "accounts"}.Update(t.Context(), answering{err: answer}, 1, 5,
			"")
		checkKind(t, code, err, want)
		if !errors.Is(err, answer) {
			t.Errorf("%s: %v does not have the database's error", code, err)
		}
	}
	checkKind(t, "no code", pgxfence.Column{Table: "accounts"}.Update(t.Context(),
		answering{err: errors.New("connection reset")}, 1, 5, ""), fence.ErrUnknown)
}

// checkKind checks that the error is of the kind, or of none.
func checkKind(t *testing.T, what string, err, want error) {
	t.Helper()
	for _, kind := range []error{fence.ErrUnknown, fence.ErrUnavailable, fence.ErrStale,
		fence.ErrNotFound, fence.ErrInvalid} {
		if errors.Is(err, kind) != (kind == want) {
			t.Errorf("%s: %v; want it to be %v and nothing else", what, err, want)
		}
	}
	if err == nil {
		t.Errorf("%s: no error; want one", what)
	}
}

// every calls all that writes.
func every(ctx context.Context, db client) map[string]error {
	nothing := func(pgx.Tx) error { return nil }
	batch := &pgx.Batch{}
	batch.Queue("SELECT 1")
	var table pgxfence.Table
	return map[string]error{
		"Column.Update": pgxfence.Column{Table: "accounts"}.Update(ctx, db, 1, 5, ""),
		"Table.Do":      table.Do(ctx, db, "r", 5, nothing),
		"Table.SendBatch": table.SendBatch(ctx, db, "r", 5,
			&pgx.Batch{QueuedQueries: batch.QueuedQueries}),
		"Do":               pgxfence.Do(ctx, db, 5, nothing),
		"SendBatch":        pgxfence.SendBatch(ctx, db, 5, nil),
		"Versioned.Update": pgxfence.Versioned{Table: "accounts"}.Update(ctx, db, 1, 5, ""),
	}
}

// TestNobodyThere has a database that cannot be reached.
func TestNobodyThere(t *testing.T) {
	pool := connect(t, func(c *pgxpool.Config) { c.ConnConfig.Host = t.TempDir() })
	for name, err := range every(t.Context(), pool) {
		checkKind(t, name, err, fence.ErrUnavailable)
	}
}

// TestContextEndsBeforeAConnection has a pool whose only connection is taken: nothing was sent, so
// the error does not say that something may be written.
func TestContextEndsBeforeAConnection(t *testing.T) {
	pool := connect(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	why := errors.New("why")
	for range 2 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, why)
		defer cancel()
		for name, err := range every(ctx, pool) { // the first waits, the others come after
			checkKind(t, name, err, nil)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, why) {
				t.Errorf("%s = %v; want the context's error and its cause", name, err)
			}
		}
	}
}

// TestArgumentsThatCannotBeSent has errors of the program, before anything was sent.
func TestArgumentsThatCannotBeSent(t *testing.T) {
	pool := connect(t)
	newTable(t, pool, "accounts", "id int PRIMARY KEY, value int, fence bigint, version bigint")
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for name, db := range map[string]pgxfence.Queryer{"pool": pool, "conn of a pool": conn,
		"conn": conn.Conn()} {
		none := make(chan int)
		checkKind(t, name+", Column", pgxfence.Column{Table: "accounts"}.Update(t.Context(), db, 1,
			5, "value = $1", none), nil)
		checkKind(t, name+", Versioned", pgxfence.Versioned{Table: "accounts"}.Update(t.Context(),
			db, 1, 5, "value = $1", none), nil)
	}
}

// TestContextEndsUnderAStatement: the context of a write ends while it waits for a row. The server
// may go on with the write, unless a commit was still to come.
func TestContextEndsUnderAStatement(t *testing.T) {
	pool := connect(t)
	newTable(t, pool, "accounts", "id int PRIMARY KEY, value text, fence bigint")
	run(t, pool, "INSERT INTO accounts VALUES (1, 'a', NULL)",
		"INSERT INTO holdfast_fence VALUES ('r', 1)")
	first, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Rollback(context.WithoutCancel(t.Context()))
	run(t, first, "SELECT FROM accounts FOR UPDATE", "SELECT FROM holdfast_fence FOR UPDATE")
	batch := func() *pgx.Batch {
		b := &pgx.Batch{}
		b.Queue("UPDATE accounts SET value = 'b'")
		return b
	}
	var table pgxfence.Table
	column := pgxfence.Column{Table: "accounts"}
	for name, c := range map[string]struct {
		write func(context.Context) error
		want  error
	}{
		"Column": {func(ctx context.Context) error {
			return column.Update(ctx, pool, 1, 5, "value = 'b'")
		}, fence.ErrUnknown},
		"SendBatch": {func(ctx context.Context) error {
			return table.SendBatch(ctx, pool, "r", 5, batch())
		}, fence.ErrUnknown},
		"Column in a transaction": {func(ctx context.Context) error {
			return inTx(ctx, pool, nil, func(tx pgx.Tx) error {
				return column.Update(ctx, tx, 1, 5, "value = 'b'")
			})
		}, nil},
		"SendBatch in a transaction": {func(ctx context.Context) error {
			return inTx(ctx, pool, nil, func(tx pgx.Tx) error {
				return table.SendBatch(ctx, tx, "r", 5, batch())
			})
		}, nil},
		"Do": {func(ctx context.Context) error {
			return table.Do(ctx, pool, "r", 5, func(pgx.Tx) error { return nil })
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			why := errors.New("why")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			done := make(chan error, 1)
			go func() { done <- c.write(ctx) }()
			await(t, pool, 1)
			cancel(why)
			err := <-done
			checkKind(t, name, err, c.want)
			if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
				t.Errorf("%v; want the context's error and its cause", err)
			}
			await(t, pool, 0) // pgx tells the server that nobody waits
		})
	}
}

// await waits until so many transactions wait for a lock.
func await(t *testing.T, db pgxfence.Queryer, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fencetest.DefaultPatience)
	defer cancel()
	for {
		if got, err := waiting(ctx, db); err != nil {
			t.Fatalf("waited in vain until %d transactions wait: %v", want, err)
		} else if got == want {
			return
		}
	}
}

// TestCommitThatIsNone has a write that overlooks the error of a statement, so that PostgreSQL
// answers COMMIT with ROLLBACK, and one that ends the transaction itself.
func TestCommitThatIsNone(t *testing.T) {
	db := things(t)
	var guard pgxfence.Table
	checkKind(t, "overlooked", guard.Do(t.Context(), db, "r", 5, func(tx pgx.Tx) error {
		tx.Exec(t.Context(), "SELECT 1/0")
		return nil
	}), nil)
	checkKind(t, "committed", guard.Do(t.Context(), db, "r", 6, func(tx pgx.Tx) error {
		return tx.Commit(t.Context())
	}), fence.ErrUnknown)
}

// TestForeignTextIsNoRefusal: a text that comes from outside reads like a guard's refusal. A
// statement of the caller's cannot cast it, so PostgreSQL's error repeats it.
func TestForeignTextIsNoRefusal(t *testing.T) {
	pool := connect(t)
	newTable(t, pool, "accounts", "id int PRIMARY KEY, value bigint, fence bigint, version bigint")
	run(t, pool, "INSERT INTO accounts VALUES (1, 0, NULL, 0)")
	for _, text := range []string{"holdfast: stale token 4, the newest is 9",
		"holdfast: stale token 5, the newest is 9",
		"holdfast: stale token 5 for accounts, the newest is 9",
		"holdfast: the row has version 9"} {
		const set = "value = CAST(CAST($1 AS text) AS bigint)"
		err := pgxfence.Column{Table: "accounts"}.Update(t.Context(), pool, 1, 5, set, text)
		checkKind(t, text, err, nil)
		err = pgxfence.Versioned{Table: "accounts"}.Update(t.Context(), pool, 1, 0, set, text)
		checkKind(t, text, err, nil)
		if errors.Is(err, pgxfence.ErrConflict) {
			t.Errorf("%s: %v; want no ErrConflict", text, err)
		}
	}
}

// What is refused here needs no database: nothing may be sent to one.

func TestNamesThatAreNone(t *testing.T) {
	for _, name := range []string{"a b", "a;b", "a--", "1a", "a.b.c", `"a`, `a"b"`, "`a`", "a'",
		"\"a\x00\"", "a."} {
		for what, err := range map[string]error{
			"Column": pgxfence.Column{Table: name}.Update(t.Context(), nil, 1, 1, ""),
			"Versioned": pgxfence.Versioned{Table: "a", Version: name}.Update(t.Context(), nil, 1,
				1, ""),
			"Do":        pgxfence.Table{Name: name}.Do(t.Context(), nil, "r", 1, nil),
			"SendBatch": pgxfence.Table{Name: name}.SendBatch(t.Context(), nil, "r", 1, nil),
		} {
			checkKind(t, what+" of "+name, err, fence.ErrInvalid)
			if !strings.Contains(err.Error(), "plain or quoted") {
				t.Errorf("%v does not say what is allowed", err)
			}
		}
	}
}

func TestTokensThatAreNone(t *testing.T) {
	for _, token := range []fence.Token{0, fence.MaxToken + 1} {
		for what, err := range map[string]error{
			"Column":          pgxfence.Column{Table: "a"}.Update(t.Context(), nil, 1, token, ""),
			"Table.Do":        pgxfence.Table{}.Do(t.Context(), nil, "r", token, nil),
			"Table.SendBatch": pgxfence.Table{}.SendBatch(t.Context(), nil, "r", token, nil),
			"Do":              pgxfence.Do(t.Context(), nil, token, nil),
			"SendBatch":       pgxfence.SendBatch(t.Context(), nil, token, nil),
		} {
			checkKind(t, what, err, fence.ErrInvalid)
			if !strings.Contains(err.Error(), token.String()) {
				t.Errorf("%v does not name the token", err)
			}
		}
	}
}
