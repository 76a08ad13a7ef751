package pgxfence

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Queryer runs statements. It is a *pgxpool.Pool, *pgxpool.Conn, *pgx.Conn or [pgx.Tx], or a
// wrapper of one. A wrapper of a transaction has to be a pgx.Tx itself.
type Queryer interface {
	// Exec is that of pgx.
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)

	// QueryRow is that of pgx.
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row

	// SendBatch is that of pgx.
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// Beginner starts transactions. It is a *pgxpool.Pool, *pgxpool.Conn or *pgx.Conn, or a wrapper of
// one. A [pgx.Tx] starts a nested transaction, which is final when the outer one is committed.
type Beginner interface {
	// Begin is that of pgx.
	Begin(ctx context.Context) (pgx.Tx, error)
}

// withConn runs use on one connection. It first asks a pool for the connection. If that fails,
// nothing was sent; the error of a statement would not tell that.
func withConn(ctx context.Context, db Queryer, w attempt, use func(Queryer) error) error {
	pool, ok := db.(*pgxpool.Pool)
	if !ok {
		return use(db)
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return w.outcome(ctx, false, err)
	}
	defer conn.Release()
	return use(conn)
}

// decides reports whether what db runs is final at once, without a later commit.
func decides(db Queryer) bool {
	_, inTransaction := db.(pgx.Tx)
	return !inTransaction
}

// inOrder reports whether the connection still works. pgx closes a broken connection, so on one
// that still works an error that is not the server's comes from before the statement was sent.
func inOrder(db Queryer) bool {
	switch db := db.(type) {
	case *pgxpool.Conn:
		return !db.Conn().IsClosed()
	case *pgx.Conn:
		return !db.IsClosed()
	}
	return false
}
