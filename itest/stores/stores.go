// Package stores is every kind of store that has a guard, as the laboratory writes to it: a counter
// for each key, which is read and written through the guard, and a twin of it that nothing guards.
//
// A further kind is a type with the methods of [Store], and a row of [Kinds]. If it needs a server,
// package job says where that is, and package lab starts it.
package stores

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/itest/job"
)

// Store is one kind of store, as one process has it open. The writer is the holder of a lock with
// the token. One goroutine at a time uses it. A guard that refuses fails with *fence.StaleError.
type Store interface {
	// Create makes counters and twins with the value 0. It is called once, before all others.
	Create(ctx context.Context, keys []string) error

	// Enter reads a counter through the guard, in one step with it. From then on smaller tokens are
	// refused. So no earlier holder writes between this read and the write that follows, and no
	// later holder has written what Enter reads.
	Enter(ctx context.Context, key string, token fence.Token) (value uint64, err error)

	// Write sets a counter through the guard.
	Write(ctx context.Context, key string, token fence.Token, value uint64) error

	// Get reads a counter, bypassing the guard.
	Get(ctx context.Context, key string) (uint64, error)

	// Twin reads a twin.
	Twin(ctx context.Context, key string) (uint64, error)

	// SetTwin sets a twin.
	SetTwin(ctx context.Context, key string, value uint64) error

	// Close ends what was opened.
	Close() error
}

// Kind is one kind of store.
type Kind struct {
	Name string                             // as it is called in reports
	Open func(at job.Stores) (Store, error) // opens it where it is
}

// Kinds are all there are.
var Kinds = []Kind{
	{"PostgreSQL, Column", onPostgres(column)},
	{"PostgreSQL, Table", onPostgres(table)},
	{"PostgreSQL, Trigger", onPostgres(trigger)},
	{"PostgreSQL, Column over pgx", onPgx(pgxColumn)},
	{"PostgreSQL, Table over pgx", onPgx(pgxTable)},
	{"PostgreSQL, Trigger over pgx", onPgx(pgxTrigger)},
	{"MariaDB, Column", onMariaDB(column)},
	{"MariaDB, Table", onMariaDB(table)},
	{"MariaDB, Trigger", onMariaDB(trigger)},
	{"SQLite, Column", onSQLite(column)},
	{"SQLite, Table", onSQLite(table)},
	{"SQLite, Trigger", onSQLite(trigger)},
	{"Redis, token in a key", onRedis("")},
	{"Redis, token in a field", onRedis("fence")},
	{"etcd", openEtcd},
	{"S3", openS3},
	{"file", openFile},
	{"HTTP, PostgreSQL behind it", openHTTP},
	{"memory, Register", openMemory},
}

// bound is the bound of guards that have one. It is long because the machine may be busy.
const bound = time.Minute

// Named is a store with the name of its kind.
type Named struct {
	Store        // as it was opened
	Name  string // of its kind
}

// Open opens all of them. If one cannot be opened, it closes the others.
func Open(at job.Stores) (all []Named, err error) {
	for _, k := range Kinds {
		s, err := k.Open(at)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", k.Name, err), Close(all))
		}
		all = append(all, Named{s, k.Name})
	}
	return all, nil
}

// Close closes all of them.
func Close(all []Named) (err error) {
	for _, s := range all {
		if e := s.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", s.Name, e))
		}
	}
	return err
}
