package pgxfence_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
)

// inEachMode runs f with each way of pgx to send a batch.
func inEachMode(t *testing.T, f func(t *testing.T, db client)) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement,
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			things(t)
			f(t, connect(t, func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
			}))
		})
	}
}

// TestRefusedBatchWritesNothing sees that a batch is all or nothing without a transaction around.
func TestRefusedBatchWritesNothing(t *testing.T) {
	var guard pgxfence.Table
	inEachMode(t, func(t *testing.T, db client) {
		batch := func() (b *pgx.Batch, called *bool) {
			b, called = &pgx.Batch{}, new(bool)
			b.Queue(upsert("things"), "a", "x").Exec(func(pgconn.CommandTag) error {
				*called = true
				return nil
			})
			b.Queue("INSERT INTO things VALUES ($1, $2)", "b", "y")
			return b, called
		}
		for range 2 { // as it is, and as pgx keeps it
			older, called := batch()
			err := guard.SendBatch(t.Context(), db, "r", 4, older)
			var stale *fence.StaleError
			if !errors.As(err, &stale) || stale.Resource != "r" || stale.Token != 4 ||
				stale.Newest != 5 {
				t.Errorf("SendBatch with token 4 after 5 = %v; want a StaleError", err)
			}
			if *called {
				t.Error("a function of a query is called after the refusal")
			}
			if written := value(t, db, allThings); written != "" {
				t.Errorf("%s was written", written)
			}
		}
		newer, called := batch()
		if err := guard.SendBatch(t.Context(), db, "r", 6, newer); err != nil || !*called {
			t.Errorf("SendBatch = %v; the function of a query was called: %v", err, *called)
		}
		again, _ := batch() // b is there
		if err := guard.SendBatch(t.Context(), db, "r", 9, again); err == nil ||
			errors.Is(err, fence.ErrUnknown) {
			t.Errorf("SendBatch with a duplicate = %v; want its error", err)
		}
		if err := guard.SendBatch(t.Context(), db, "r", 7, nil); err != nil {
			t.Errorf("SendBatch with token 7 after 9 was rolled back = %v", err)
		}
		if written := value(t, db, allThings); written != "a=x b=y" {
			t.Errorf("%q was written; want a=x b=y", written)
		}
	})
}

// TestBatchThatSwallowsAnError has a function of a query that returns no error though its statement
// failed. The batch still fails.
func TestBatchThatSwallowsAnError(t *testing.T) {
	inEachMode(t, func(t *testing.T, db client) {
		batch := &pgx.Batch{}
		batch.Queue(upsert("things"), "a", "x")
		batch.Queue("SELECT 1 / (length($1) - 1)", "x").QueryRow(func(row pgx.Row) error {
			var n int
			row.Scan(&n)
			return nil
		})
		err := pgxfence.Table{}.SendBatch(t.Context(), db, "r", 6, batch)
		if err == nil || errors.Is(err, fence.ErrUnknown) {
			t.Errorf("SendBatch = %v; the database has said that it rolled back", err)
		}
		if written := value(t, db, allThings); written != "" {
			t.Errorf("%s was written", written)
		}
	})
}

// TestBatchWhoseFunctionFails sees that an error that comes too late is not reported as one that
// has undone the batch.
func TestBatchWhoseFunctionFails(t *testing.T) {
	broken := errors.New("broken")
	batch := func() *pgx.Batch {
		b := &pgx.Batch{}
		b.Queue(upsert("things"), "a", "x").Exec(func(pgconn.CommandTag) error { return broken })
		return b
	}
	inEachMode(t, func(t *testing.T, db client) {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var guard pgxfence.Table
		if err := guard.SendBatch(t.Context(), tx, "r", 6, batch()); !errors.Is(err, broken) ||
			errors.Is(err, fence.ErrUnknown) {
			t.Errorf("SendBatch in a transaction = %v; want the function's error", err)
		}
		if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("Commit = %v; want ErrTxClosed", err)
		}
		if written := value(t, db, allThings); written != "" {
			t.Errorf("%s was written", written)
		}
		if err := guard.SendBatch(t.Context(), db, "r", 6, batch()); !errors.Is(err, broken) ||
			!errors.Is(err, fence.ErrUnknown) {
			t.Errorf("SendBatch = %v; want ErrUnknown with the function's error", err)
		}
	})
}

// TestBatchKeepsItsRowLocked: a batch waits in the middle. A batch of a newer holder has to wait
// for the whole of it.
func TestBatchKeepsItsRowLocked(t *testing.T) {
	var guard pgxfence.Table
	inEachMode(t, func(t *testing.T, db client) {
		run(t, db, "INSERT INTO things VALUES ('a', '')")
		first, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer first.Rollback(context.WithoutCancel(t.Context()))
		run(t, first, "SELECT FROM things FOR UPDATE")
		done := make(chan error, 2)
		send := func(token fence.Token, things ...string) {
			batch := &pgx.Batch{}
			for _, id := range things {
				batch.Queue(upsert("things"), id, token.String())
			}
			done <- guard.SendBatch(t.Context(), db, "r", token, batch)
		}
		go send(6, "a", "b")
		await(t, db, 1)
		go send(7, "b")
		await(t, db, 2)
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if written := value(t, db, allThings); written != "a=6 b=7" {
			t.Errorf("%q was written; want a=6 b=7", written)
		}
	})
}

// counted counts what is sent. Before it reads, pgx sends what it has in one piece.
type counted struct {
	net.Conn
	sent *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.sent.Add(1)
	return c.Conn.Write(p)
}

// TestBatchCostsNoRoundTrip sees that a guarded batch is sent as one without a guard is.
func TestBatchCostsNoRoundTrip(t *testing.T) {
	things(t)
	var sent atomic.Int64
	db := connect(t, func(c *pgxpool.Config) {
		c.MaxConns = 1
		// A ping would count, and comes after a second.
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn,
			error) {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, network, address)
			return counted{conn, &sent}, err
		}
	})
	batch := func() *pgx.Batch {
		b := &pgx.Batch{}
		b.Queue(upsert("things"), "a", "x")
		return b
	}
	var bare, guarded int64
	for range 2 { // pgx knows the statements the second time
		before := sent.Load()
		if err := db.SendBatch(t.Context(), batch()).Close(); err != nil {
			t.Fatal(err)
		}
		bare, before = sent.Load()-before, sent.Load()
		if err := (pgxfence.Table{}).SendBatch(t.Context(), db, "r", 6, batch()); err != nil {
			t.Fatal(err)
		}
		guarded = sent.Load() - before
	}
	if bare != 1 || guarded != bare {
		t.Errorf("a batch is sent in %d pieces, and a guarded one in %d; want 1", bare, guarded)
	}
}
