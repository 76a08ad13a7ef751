package pgxfence_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/memhold"
)

// bank is an account of 100, from which each payment takes 10.
type bank struct {
	t       *testing.T
	db      client
	backend *memhold.Backend

	mu   sync.Mutex
	paid int // what was paid to others, which no rollback takes back
}

func newBank(t *testing.T, edit func(string) string) *bank {
	pool := connect(t)
	newTable(t, pool, "bank", "id int PRIMARY KEY, balance int, version bigint NOT NULL DEFAULT 0")
	run(t, pool, "INSERT INTO bank VALUES (7, 100)")
	b := &bank{t: t, db: pool, backend: memhold.New()}
	if edit != nil {
		b.db = edited{pool, edit}
	}
	t.Cleanup(func() { b.backend.Close() })
	return b
}

// pay pays under lock and version, from another process, and is paused after it has paid.
func (b *bank) pay(pause func()) error {
	l, err := holdfast.New(b.backend.Client())
	if err != nil {
		b.t.Error(err)
		return err
	}
	defer l.Close()
	return pgxfence.Versioned{Table: "bank"}.Do(b.t.Context(), l, b.db, 7,
		func(ctx context.Context) (string, []any, error) {
			var balance int
			err := b.db.QueryRow(context.WithoutCancel(ctx),
				"SELECT balance FROM bank WHERE id = 7").Scan(&balance)
			b.mu.Lock()
			b.paid += 10
			b.mu.Unlock()
			if pause != nil {
				pause()
			}
			return "balance = $1", []any{balance - 10}, err
		})
}

// overtaken makes a payment whose lease ends in the middle, while another payment comes.
func (b *bank) overtaken() error {
	return b.pay(func() {
		b.backend.Faults().Lose("bank/7")
		if err := b.pay(nil); err != nil {
			b.t.Error(err)
		}
	})
}

// books returns the balance, and how much was paid.
func (b *bank) books() (balance, paid int) {
	if err := b.db.QueryRow(b.t.Context(),
		"SELECT balance FROM bank WHERE id = 7").Scan(&balance); err != nil {
		b.t.Error(err)
	}
	return balance, b.paid
}

func TestLockAndVersion(t *testing.T) {
	t.Run("at once", func(t *testing.T) {
		b := newBank(t, nil)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := b.pay(nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if balance, paid := b.books(); balance != 50 || paid != 50 {
			t.Errorf("the balance is %d, and %d was paid; want 50 and 50", balance, paid)
		}
	})
	t.Run("paused", func(t *testing.T) {
		b := newBank(t, nil)
		if err := b.overtaken(); !errors.Is(err, sqlfence.ErrConflict) {
			t.Errorf("Do = %v; want ErrConflict", err)
		}
		if balance, paid := b.books(); balance != 90 || paid != 20 {
			t.Errorf("the balance is %d, and %d was paid; want 90 and 20", balance, paid)
		}
	})
	t.Run("no row", func(t *testing.T) {
		b := newBank(t, nil)
		err := pgxfence.Versioned{Table: "bank"}.Update(t.Context(), b.db, 8, 0, "balance = 1")
		checkKind(t, "Update", err, fence.ErrNotFound)
		l, err := holdfast.New(b.backend.Client())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		err = pgxfence.Versioned{Table: "bank"}.Do(t.Context(), l, b.db, 8, nil)
		if !errors.Is(err, fence.ErrNotFound) {
			t.Errorf("Do = %v; want ErrNotFound", err)
		}
	})
	t.Run("mutant that does not compare", func(t *testing.T) {
		b := newBank(t, replace("CASE WHEN version = ", "CASE WHEN 0 <= "))
		if err := b.overtaken(); err != nil && !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Do = %v; the mutant compares", err)
		}
		if balance, paid := b.books(); balance != 90 || paid != 20 {
			t.Errorf("the balance is %d, and %d was paid", balance, paid)
		} else if balance == 100-paid {
			t.Error("a version that is not compared is not noticed")
		}
	})
}

// TestConflictNamesBothVersions also has a version that is NULL, which is no version at all.
func TestConflictNamesBothVersions(t *testing.T) {
	pool := connect(t)
	newTable(t, pool, "accounts", "id int PRIMARY KEY, value text, version bigint")
	run(t, pool, "INSERT INTO accounts VALUES (1, 'a', 4), (2, 'a', NULL)")
	for id, want := range map[int]string{
		1: `fence: write to "accounts.id=1" refused: row changed since it was read: it had version 3, and has 4`,
		2: `fence: write to "accounts.id=2" refused: row changed since it was read: it had version 3, and has NULL`,
	} {
		err := pgxfence.Versioned{Table: "accounts"}.Update(t.Context(), pool, id, 3, "value = 'b'")
		if !errors.Is(err, pgxfence.ErrConflict) || err.Error() != want {
			t.Errorf("Update = %v; want %s", err, want)
		}
	}
	if got := value(t, pool, "SELECT string_agg(value, '') FROM accounts"); got != "aa" {
		t.Errorf("the rows are %q; want aa", got)
	}
}
