//go:build unix

package pghold_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pghold"
)

// BenchmarkPair acquires and releases a free key: with this package; with two updates of one row by
// its key, which is the floor; and with an advisory lock of a session, which writes nothing.
func BenchmarkPair(b *testing.B) {
	ctx := context.Background()
	pool := connect(b)
	run(b, pool, empty)
	backend, err := pghold.New(pool)
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	pair := func(b *testing.B, acquire, release string) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Release()
		for b.Loop() {
			for _, statement := range []string{acquire, release} {
				if _, err := conn.Exec(ctx, statement, 1); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("pghold", func(b *testing.B) {
		for b.Loop() {
			c := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: time.Minute}
			if r, err := backend.Acquire(ctx, c); err != nil || r.State != driver.Held {
				b.Fatal(r.State, err)
			}
			if _, err := backend.Release(ctx, c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("two-updates", func(b *testing.B) {
		run(b, pool, "DROP TABLE IF EXISTS floor; CREATE TABLE floor (id int PRIMARY KEY, n int) "+
			"WITH (fillfactor = 50); INSERT INTO floor VALUES (1, 0)")
		const update = "UPDATE floor SET n = n + 1 WHERE id = $1"
		pair(b, update, update)
	})
	b.Run("advisory", func(b *testing.B) {
		pair(b, "SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)")
	})
}

// BenchmarkHandoff passes a key back and forth between two claims that wait for it, by the notices
// of one process, and of two.
func BenchmarkHandoff(b *testing.B) {
	pool := connect(b)
	for name, two := range map[string]bool{"one-process": false, "two-processes": true} {
		b.Run(name, func(b *testing.B) {
			run(b, pool, empty)
			handOver(b, pool, two)
		})
	}
}

func handOver(b *testing.B, pool *pgxpool.Pool, two bool) {
	first := open(b, urlOf(running(b), ""))
	second := first
	if two {
		second = open(b, urlOf(running(b), ""))
	}
	heard := make(chan string, 16)
	for _, backend := range []*pghold.Backend{first, second} {
		defer backend.Notify(func(n driver.Notice) { heard <- n.Owner })()
	}
	backends := [2]*pghold.Backend{first, second}
	holder := claim("k")
	ask(b, first, holder, driver.Held)
	for i := 0; b.Loop(); i++ {
		next := queued("k")
		ask(b, backends[(i+1)%2], next, driver.Busy)
		release(b, backends[i%2], holder, driver.Held)
		for owner := range heard {
			if owner == next.Owner {
				break
			}
		}
		holder = next
	}
}
