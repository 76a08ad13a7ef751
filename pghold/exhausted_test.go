//go:build unix

package pghold_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pghold"
)

// TestExhaustedPool: the service itself uses every connection of its pool. The error says so, and
// what to do. A request that has been given up by the time a connection is free is not sent, so it
// leaves nothing to undo; only a release is.
func TestExhaustedPool(t *testing.T) {
	admin := connect(t)
	free := open(t, urlOf(running(t), ""))
	// take takes the only connection of the Backend's pool, and give gives it back.
	type pool func(t *testing.T) (b *pghold.Backend, take func() (give func()))
	for name, exhaust := range map[string]pool{
		"pgx": func(t *testing.T) (*pghold.Backend, func() func()) {
			pool, err := pgxpool.New(t.Context(), urlOf(running(t), "&pool_max_conns=1"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			b, err := pghold.New(pool, pghold.WithoutNotices())
			if err != nil {
				t.Fatal(err)
			}
			return b, func() func() {
				conn, err := pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return conn.Release
			}
		},
		"sql": func(t *testing.T) (*pghold.Backend, func() func()) {
			pool := stdlib.OpenDBFromPool(admin)
			t.Cleanup(func() { pool.Close() })
			pool.SetMaxOpenConns(1)
			b, err := pghold.NewSQL(pool)
			if err != nil {
				t.Fatal(err)
			}
			return b, func() func() {
				conn, err := pool.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return func() { closeConn(t, conn) }
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, admin, empty)
			b, take := exhaust(t)
			t.Cleanup(func() { b.Close() })
			held, wanted, other := claim("held"), claim("wanted"), claim("wanted")
			ask(t, b, held, driver.Held) // which also looks at the version of the tables
			give := take()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, acquired := b.Acquire(ctx, wanted)
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, renewed := b.Renew(ctx, []driver.Claim{held})
			for what, err := range map[string]error{"Acquire": acquired, "Renew": renewed} {
				if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) ||
					!strings.Contains(err.Error(), "let the pool have more") {
					t.Errorf("%s without a free connection: %v; want ErrUnavailable, and what to do",
						what, err)
				}
			}
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := b.Release(ctx, held); !errors.Is(err, driver.ErrUnknown) {
				t.Errorf("Release without a free connection: %v; want ErrUnknown", err)
			}
			give()
			ask(t, b, other, driver.Held) // it comes after the one that was given up
			ask(t, b, claim("held"), driver.Held)
			release(t, free, other, driver.Held)
		})
	}
}

func closeConn(t *testing.T, conn *sql.Conn) {
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
