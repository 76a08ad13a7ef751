package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/memhold"
)

// bank is an account of 100, from which each payment takes 10.
type bank struct {
	t       *testing.T
	d       database
	db      *sql.DB
	guarded *sql.DB // what the guard uses
	backend *memhold.Backend
	rows    sqlfence.Versioned

	mu   sync.Mutex
	paid int // what was paid to others, which no rollback takes back
}

func newBank(t *testing.T, d database) *bank {
	b := &bank{t: t, d: d, db: d.connect(t), backend: memhold.New(),
		rows: sqlfence.Versioned{Dialect: d.dialect, Table: "bank"}}
	b.guarded = b.db
	t.Cleanup(func() { b.backend.Close() })
	run(t, b.db, "DROP TABLE IF EXISTS bank",
		"CREATE TABLE bank (id int PRIMARY KEY, balance int, version bigint NOT NULL DEFAULT 0)",
		"INSERT INTO bank (id, balance) VALUES (7, 100)")
	return b
}

// locker is that of another process.
func (b *bank) locker() *holdfast.Locker {
	l, err := holdfast.New(b.backend.Client())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { l.Close() })
	return l
}

func (b *bank) balance() (balance int) {
	if err := b.db.QueryRow("SELECT balance FROM bank WHERE id = 7").Scan(&balance); err != nil {
		b.t.Error(err)
	}
	return balance
}

func (b *bank) version() (version int64) {
	if err := b.db.QueryRow("SELECT version FROM bank WHERE id = 7").Scan(&version); err != nil {
		b.t.Error(err)
	}
	return version
}

// pay makes the payment and returns the new balance, which was computed before a pause.
func (b *bank) pay(pause func()) int {
	balance := b.balance() - 10
	b.mu.Lock()
	b.paid += 10
	b.mu.Unlock()
	if pause != nil {
		pause()
	}
	return balance
}

func (b *bank) set() string { return "balance = " + b.d.place(1) }

// lockAlone pays under the lock, and writes without a check.
func (b *bank) lockAlone(l *holdfast.Locker, pause func()) error {
	return l.Do(b.t.Context(), "bank/7", func(ctx context.Context, _ *holdfast.Lock) error {
		_, err := b.db.ExecContext(ctx, "UPDATE bank SET balance = "+b.d.place(1)+" WHERE id = 7",
			b.pay(pause))
		return err
	})
}

// versionAlone pays without a lock, and checks.
func (b *bank) versionAlone(pause func()) error {
	version := b.version()
	return b.rows.Update(b.t.Context(), b.guarded, 7, version, b.set(), b.pay(pause))
}

// both is the helper.
func (b *bank) both(l *holdfast.Locker, pause func()) error {
	return b.rows.Do(b.t.Context(), l, b.guarded, 7, func(context.Context) (string, []any, error) {
		return b.set(), []any{b.pay(pause)}, nil
	})
}

func (b *bank) want(balance, paid int) {
	b.t.Helper()
	if got := b.balance(); got != balance || b.paid != paid {
		b.t.Errorf("the balance is %d, and %d was paid; want %d and %d", got, b.paid, balance, paid)
	}
}

// TestLockAloneLosesAnUpdate and the next show what each half does not do.
func TestLockAloneLosesAnUpdate(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			b := newBank(t, d)
			first, second := b.locker(), b.locker()
			if err := b.lockAlone(first, func() { // paused: its lease ends, and another comes
				b.backend.Faults().Lose("bank/7")
				if err := b.lockAlone(second, nil); err != nil {
					t.Error(err)
				}
			}); err != nil && !errors.Is(err, holdfast.ErrLost) {
				t.Error(err)
			}
			b.want(90, 20) // one of the two payments is in the books
		})
	}
}

func TestVersionAlonePaysInVain(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			b := newBank(t, d)
			err := b.versionAlone(func() { // there is no lock to keep another from beginning
				if err := b.versionAlone(nil); err != nil {
					t.Error(err)
				}
			})
			if !errors.Is(err, sqlfence.ErrConflict) {
				t.Errorf("Update = %v; want ErrConflict", err)
			}
			b.want(90, 20) // nothing is overwritten, but both have paid
		})
	}
}

func TestLockAndVersionTogether(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name+"/at once", func(t *testing.T) {
			b := newBank(t, d)
			var wg sync.WaitGroup
			for range 5 {
				l := b.locker()
				wg.Add(1)
				go func() {
					defer wg.Done()
					if err := b.both(l, nil); err != nil {
						t.Error(err)
					}
				}()
			}
			wg.Wait()
			b.want(50, 50)
		})
		t.Run(d.name+"/paused", func(t *testing.T) {
			b := newBank(t, d)
			first, second := b.locker(), b.locker()
			err := b.both(first, func() {
				b.backend.Faults().Lose("bank/7")
				if err := b.both(second, nil); err != nil {
					t.Error(err)
				}
			})
			if !errors.Is(err, sqlfence.ErrConflict) {
				t.Errorf("Do = %v; want ErrConflict", err)
			}
			b.want(90, 20) // the refused payer knows, and can have its payment undone
		})
		t.Run(d.name+"/no row", func(t *testing.T) {
			b := newBank(t, d)
			if err := b.rows.Do(t.Context(), b.locker(), b.db, 8, nil); !errors.Is(err,
				fence.ErrNotFound) {
				t.Errorf("Do = %v; want ErrNotFound", err)
			}
			if err := b.rows.Update(t.Context(), b.db, 8, 0, b.set(), 1); !errors.Is(err,
				fence.ErrNotFound) || errors.Is(err, sqlfence.ErrConflict) {
				t.Errorf("Update = %v; want ErrNotFound", err)
			}
			b.want(100, 0)
		})
	}
}
