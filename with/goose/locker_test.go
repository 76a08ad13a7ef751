package withgoose_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/memhold"
	withgoose "github.com/holdfast-go/holdfast/with/goose"
)

var errWhy = errors.New("the caller's reason")

// stage is a database, and processes that migrate it.
type stage struct {
	*testing.T
	memory *memhold.Backend
	db     *sql.DB

	told chan error // by WithOnError
}

func newStage(t *testing.T) *stage { return stageIn(t, t.TempDir()) }

// play runs a test in a bubble, where time is exact and costs nothing.
func play(t *testing.T, f func(*testing.T, *stage)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { f(t, stageIn(t, dir)) })
}

func stageIn(t *testing.T, dir string) *stage {
	memory := memhold.New()
	// goose reads the version before it asks for the lock, while another process may write.
	db, err := sql.Open("sqlite", filepath.Join(dir, "db")+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		db.Close()
		memory.Close()
	})
	return &stage{T: t, memory: memory, db: db, told: make(chan error, 10)}
}

// process returns what a process migrates with.
func (s *stage) process(migrations ...*goose.Migration) (*withgoose.Locker, *goose.Provider) {
	s.Helper()
	locker, err := holdfast.New(s.memory)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { locker.Close() })
	l, err := withgoose.New(locker, "db",
		withgoose.WithOnError(func(err error) { s.told <- err }))
	if err != nil {
		s.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, s.db, nil, goose.WithLocker(l),
		goose.WithGoMigrations(migrations...), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		s.Fatal(err)
	}
	return l, p
}

// migration makes a table, and calls then before it is done.
func migration(version int64, table string, then func(context.Context) error) *goose.Migration {
	return goose.NewGoMigration(version, &goose.GoFunc{
		RunTx: func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "CREATE TABLE "+table+" (id int)"); err != nil {
				return err
			}
			if then == nil {
				return nil
			}
			return then(ctx)
		}}, nil)
}

func (s *stage) has(table string) bool {
	s.Helper()
	n := 0
	err := s.db.QueryRow("SELECT count(*) FROM sqlite_master WHERE name = ?", table).Scan(&n)
	if err != nil {
		s.Fatal(err)
	}
	return n == 1
}

// Processes that start together migrate once, and the others wait meanwhile.
func TestOneMigrates(t *testing.T) {
	const processes = 4
	s := newStage(t)
	var applied atomic.Int64
	untilOthersWait := func(context.Context) error {
		testserver.Eventually(t, "the others wait", func() error {
			entry, err := s.memory.Inspect(t.Context(), "db")
			return errors.Join(err, testserver.Not(len(entry.Waiters) == processes-1, "%+v", entry))
		})
		return nil
	}
	var providers []*goose.Provider
	for range processes {
		_, p := s.process(migration(1, "a", untilOthersWait), migration(2, "b", nil))
		providers = append(providers, p)
	}
	if _, err := providers[0].GetDBVersion(t.Context()); err != nil { // makes goose's table
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for _, p := range providers {
		wait.Go(func() {
			results, err := p.Up(t.Context())
			if err != nil {
				t.Error(err)
			}
			applied.Add(int64(len(results)))
		})
	}
	wait.Wait()
	if n := applied.Load(); n != 2 || !s.has("a") || !s.has("b") || len(s.told) != 0 {
		t.Errorf("%d migrations applied, told %d times", n, len(s.told))
	}
}

// The migration under way is rolled back, and no other begins.
func TestLossEndsMigrations(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		l, p := s.process(migration(1, "a", nil),
			migration(2, "b", func(ctx context.Context) error {
				s.memory.Faults().Give("db", "a thief", time.Hour)
				<-ctx.Done()
				return context.Cause(ctx)
			}), migration(3, "c", nil))
		ctx, cancel := l.Context(t.Context())
		defer cancel()
		_, err := p.Up(ctx)
		isLoss(t, "Up", err)
		isLoss(t, "the cause of the context", context.Cause(ctx))
		if !s.has("a") || s.has("b") || s.has("c") {
			t.Errorf("tables: %v, %v, %v; want the first only", s.has("a"), s.has("b"), s.has("c"))
		}
	})
}

// Without a context of ours migrations run on, and the loss is reported.
func TestLossIsTold(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, p := s.process(migration(1, "a", func(ctx context.Context) error {
			s.memory.Faults().Give("db", "a thief", time.Hour)
			isLoss(t, "what is told", <-s.told)
			return ctx.Err()
		}), migration(2, "b", nil))
		_, err := p.Up(t.Context())
		isLoss(t, "Up", err)
		if len(s.told) != 0 || !s.has("a") || !s.has("b") {
			t.Errorf("told %d times more, tables %v, %v", len(s.told), s.has("a"), s.has("b"))
		}
	})
}

// A wait for the lock ends with the context, and nothing is migrated.
func TestContextEndsTheWait(t *testing.T) {
	s := newStage(t)
	l, p := s.process(migration(1, "a", nil))
	s.memory.Faults().Give("db", "another", time.Hour)
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := make(chan error)
	go func() {
		_, err := p.Up(ctx)
		asked <- err
	}()
	testserver.Eventually(t, "it waits", func() error {
		entry, err := s.memory.Inspect(t.Context(), "db")
		return errors.Join(err, testserver.Not(len(entry.Waiters) == 1, "%+v", entry))
	})
	second := l.Lock(canceled(t), nil) // behind the one that waits
	cancel(errWhy)
	if err := <-asked; !errors.Is(err, errWhy) || s.has("a") || !errors.Is(second, errWhy) {
		t.Errorf("Up = %v, Lock = %v, migrated: %v; want the cause", err, second, s.has("a"))
	}
	s.memory.Faults().Lose("db")
	if _, err := p.Up(t.Context()); err != nil || !s.has("a") {
		t.Errorf("Up when the lock is free = %v, migrated: %v", err, s.has("a"))
	}
	if err := l.Unlock(t.Context(), nil); err == nil {
		t.Error("Unlock of nothing = nil")
	}
}

// faulty is a context that panics when it is asked for its error.
type faulty struct{ context.Context }

func (faulty) Err() error { panic("a fault of the caller's") }

// A panic of the caller's context leaves the lock to others, in this process, too.
func TestContextThatPanicsLeavesTheLockToOthers(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		l, p := s.process(migration(1, "a", nil))
		recovered := func(call func(context.Context, *sql.DB) error) {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach the caller")
				}
			}()
			call(faulty{t.Context()}, nil)
		}
		recovered(l.Lock)
		if err := l.Lock(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		recovered(l.Unlock)
		if _, err := p.Up(t.Context()); err != nil || !s.has("a") {
			t.Errorf("Up = %v, migrated: %v", err, s.has("a"))
		}
	})
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errWhy)
	return ctx
}

func TestInvalid(t *testing.T) {
	locker, err := holdfast.New(memhold.New())
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	for name, err := range map[string]error{
		"no locker":       second(withgoose.New(nil, "db")),
		"no key":          second(withgoose.New(locker, "")),
		"nil option":      second(withgoose.New(locker, "db", nil)),
		"nil lock option": second(withgoose.New(locker, "db", withgoose.WithLockOptions(nil))),
	} {
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func second(_ *withgoose.Locker, err error) error { return err }

func isLoss(t *testing.T, what string, err error) {
	t.Helper()
	var lost *holdfast.LostError
	if !errors.As(err, &lost) {
		t.Errorf("%s is %v, want a LostError", what, err)
	}
}
