package withmigrate_test

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	databasestub "github.com/golang-migrate/migrate/v4/database/stub"
	databasetesting "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/golang-migrate/migrate/v4/source"
	sourcestub "github.com/golang-migrate/migrate/v4/source/stub"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	withmigrate "github.com/holdfast-go/holdfast/with/migrate"
)

// ttl is the TTL of locks. A loss is noticed after a third of it.
const ttl = 3 * time.Second

// stage is a database, and processes that migrate it.
type stage struct {
	*testing.T
	memory *memhold.Backend
	db     *databasestub.Stub
	texts  []string               // of the migrations
	during func(migration string) // called while one runs

	told chan error // losses
}

func newStage(t *testing.T) *stage {
	memory := memhold.New()
	t.Cleanup(func() { memory.Close() })
	db, err := databasestub.WithInstance(nil, &databasestub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &stage{T: t, memory: memory, db: db.(*databasestub.Stub),
		texts: []string{"one", "two", "three"}, during: func(string) {}, told: make(chan error, 10)}
}

// play runs a test in a bubble, where time is exact and costs nothing.
func play(t *testing.T, f func(*testing.T, *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newStage(t)) })
}

// observed is the driver of the stage's database.
type observed struct {
	*databasestub.Stub
	stage *stage
}

func (o observed) Run(migration io.Reader) error {
	if err := o.Stub.Run(migration); err != nil {
		return err
	}
	o.stage.during(string(o.Stub.LastRunMigration))
	return nil
}

// driver returns the driver of another process.
func (s *stage) driver(options ...withmigrate.Option) database.Driver {
	s.Helper()
	locker, err := holdfast.New(s.memory)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { locker.Close() })
	options = append(options, withmigrate.WithLockOptions(holdfast.WithTTL(ttl)),
		withmigrate.WithOnError(func(err error) { s.told <- err }))
	d, err := withmigrate.New(locker, "db", observed{s.db, s}, options...)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// process returns the Migrate of another process, with the versions 1, 2 and 3.
func (s *stage) process(options ...withmigrate.Option) *migrate.Migrate {
	s.Helper()
	src, err := sourcestub.WithInstance(nil, &sourcestub.Config{})
	if err != nil {
		s.Fatal(err)
	}
	for i, text := range s.texts {
		src.(*sourcestub.Stub).Migrations.Append(&source.Migration{Version: uint(i + 1),
			Direction: source.Up, Identifier: text})
	}
	m, err := migrate.NewWithInstance("stub", src, "stub", s.driver(options...))
	if err != nil {
		s.Fatal(err)
	}
	return m
}

// is checks the version of the database, and which migrations it has run.
func (s *stage) is(version int, dirty bool, run ...string) {
	s.Helper()
	if s.db.CurrentVersion != version || s.db.IsDirty != dirty ||
		!slices.Equal(s.db.MigrationSequence, run) {
		s.Errorf("version %d, dirty %v, run %q; want %d, %v, %q", s.db.CurrentVersion,
			s.db.IsDirty, s.db.MigrationSequence, version, dirty, run)
	}
}

// lose gives the lock to somebody else, and waits until its holder was told.
func (s *stage) lose() {
	s.Helper()
	s.memory.Faults().Give("db", "a thief", time.Hour)
	isLoss(s.T, "what is told", <-s.told)
}

// golang-migrate's own tests of drivers.
func TestTheirs(t *testing.T) {
	for name, options := range map[string][]withmigrate.Option{
		"our lock":   nil,
		"both locks": {withmigrate.WithDriverLock()},
	} {
		t.Run(name, func(t *testing.T) {
			databasetesting.Test(t, newStage(t).driver(options...), []byte("migration"))
		})
	}
}

// A process that starts while another migrates waits, and finds nothing to do.
func TestOneMigrates(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		s.during = func(string) { time.Sleep(time.Second) }
		first := make(chan error)
		go func() { first <- s.process().Up() }()
		synctest.Wait()
		if err := s.process().Up(); !errors.Is(err, migrate.ErrNoChange) {
			t.Errorf("Up of the second = %v, want ErrNoChange", err)
		}
		if err := <-first; err != nil {
			t.Errorf("Up of the first = %v", err)
		}
		s.is(3, false, "one", "two", "three")
	})
}

func TestWait(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		s.memory.Faults().Give("db", "another", time.Hour)
		for wait, m := range map[time.Duration]*migrate.Migrate{
			withmigrate.DefaultWait: s.process(),
			time.Second:             s.process(withmigrate.WithWait(time.Second)),
		} {
			began := time.Now()
			if err := m.Up(); !errors.Is(err, database.ErrLocked) || time.Since(began) != wait {
				t.Errorf("Up = %v after %v; want ErrLocked after %v", err, time.Since(began), wait)
			}
		}
		s.memory.Close()
		if err := s.process().Up(); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("Up without a backend = %v", err)
		}
		s.is(database.NilVersion, false)
	})
}

// The migration under way goes on, and no other begins. After an error golang-migrate leaves a
// goroutine behind, which waits until somebody reads the next migration, unless that is empty.
func TestLossEndsMigrations(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		s.texts[2] = ""
		s.during = func(migration string) {
			if migration != "two" {
				return
			}
			s.lose() // which is told while the migration runs
			s.memory.Faults().Lose("db")
			if err := s.process().Up(); !errors.As(err, new(migrate.ErrDirty)) {
				t.Errorf("Up of another = %v, want that the dirty mark keeps it out", err)
			}
		}
		m := s.process()
		isLoss(t, "Up", m.Up())
		s.is(2, false, "one", "two")
		s.during = func(string) {}
		if err := m.Up(); err != nil { // the next time, with another lock
			t.Errorf("Up again = %v", err)
		}
		s.is(3, false, "one", "two", "")
	})
}

// A migration that was marked before a loss, and not run yet, is not run.
func TestLossBeforeRun(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		d := s.driver()
		if err := errors.Join(d.Lock(), d.SetVersion(1, true)); err != nil {
			t.Fatal(err)
		}
		s.lose()
		isLoss(t, "Run", d.Run(nil))
		isLoss(t, "Drop", d.Drop())
		s.is(1, true)
		if err := d.Unlock(); err != nil {
			t.Errorf("Unlock = %v, want nothing that was not said", err)
		}
		s.memory.Faults().Lose("db")
		if err := d.Lock(); err != nil {
			t.Fatal(err)
		}
		s.lose()
		isLoss(t, "Unlock of the next lock, of whose loss nobody has heard", d.Unlock())
	})
}

func TestLossDuringTheLast(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		s.during = func(migration string) {
			if migration == "three" {
				s.lose()
			}
		}
		isLoss(t, "Up", s.process().Up())
		s.is(3, false, "one", "two", "three")
	})
}

// The driver's own lock is used only if it is asked for. If that one is taken, ours is free.
func TestDriverLock(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		if err := s.db.Lock(); err != nil {
			t.Fatal(err)
		}
		if err := s.process(withmigrate.WithDriverLock()).Up(); !errors.Is(err,
			database.ErrLocked) {
			t.Errorf("Up while the driver's lock is taken = %v", err)
		}
		if err := s.process().Up(); err != nil {
			t.Errorf("Up without the driver's lock = %v", err)
		}
		opened, err := s.driver().Open("stub://")
		if err != nil || opened.Lock() != nil || s.driver(withmigrate.WithWait(1)).Lock() == nil {
			t.Errorf("a driver that was opened has not our lock: %v", err)
		}
		if err := errors.Join(opened.Unlock(), opened.Close()); err != nil {
			t.Error(err)
		}
	})
}

// broken is a driver whose lock panics.
type broken struct{ database.Driver }

func (broken) Lock() error { panic("a fault of the driver's") }

// If the driver's own lock panics, nobody has ours.
func TestDriverLockThatPanics(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		locker, err := holdfast.New(s.memory)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close()
		d, err := withmigrate.New(locker, "db", broken{s.db}, withmigrate.WithDriverLock())
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { recover() }()
			err = d.Lock()
			t.Errorf("Lock = %v, want the panic", err)
		}()
		if err := s.driver(withmigrate.WithWait(time.Second)).Lock(); err != nil {
			t.Error(err)
		}
	})
}

// sealed is a driver whose unlock panics.
type sealed struct{ database.Driver }

func (sealed) Lock() error   { return nil }
func (sealed) Unlock() error { panic("a fault of the driver's") }

// If the driver's own unlock panics, nobody has ours.
func TestDriverUnlockThatPanics(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		locker, err := holdfast.New(s.memory)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close()
		d, err := withmigrate.New(locker, "db", sealed{s.db}, withmigrate.WithDriverLock())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Lock(); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { recover() }()
			err = d.Unlock()
			t.Errorf("Unlock = %v, want the panic", err)
		}()
		if err := s.driver(withmigrate.WithWait(time.Second)).Lock(); err != nil {
			t.Error(err)
		}
	})
}

func TestInvalid(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		locker, err := holdfast.New(s.memory)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close()
		for name, err := range map[string]error{
			"no locker":  second(withmigrate.New(nil, "db", s.db)),
			"no key":     second(withmigrate.New(locker, "", s.db)),
			"no driver":  second(withmigrate.New(locker, "db", nil)),
			"nil option": second(withmigrate.New(locker, "db", s.db, nil)),
			"nil lock option": second(withmigrate.New(locker, "db", s.db,
				withmigrate.WithLockOptions(nil))),
			"no wait": second(withmigrate.New(locker, "db", s.db, withmigrate.WithWait(0))),
		} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	})
}

func second(_ database.Driver, err error) error { return err }

func isLoss(t *testing.T, what string, err error) {
	t.Helper()
	var lost *holdfast.LostError
	if !errors.As(err, &lost) {
		t.Errorf("%s is %v, want a LostError", what, err)
	}
}
