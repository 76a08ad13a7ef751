package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/memhold"
)

// payer pays in one of the ways that there are.
type payer func(b *bank, l *holdfast.Locker, pause func()) error

func withBoth(b *bank, l *holdfast.Locker, pause func()) error { return b.both(l, pause) }
func withLock(b *bank, l *holdfast.Locker, pause func()) error { return b.lockAlone(l, pause) }
func withVersion(b *bank, _ *holdfast.Locker, pause func()) error {
	return b.versionAlone(pause)
}

// rules are what lock and version promise together. Each returns a complaint, or "".
var rules = map[string]func(*bank, payer) string{
	"one at a time": func(b *bank, pay payer) string {
		inside, resume, begun := make(chan struct{}), make(chan struct{}), make(chan struct{})
		first, second := b.locker(), b.locker()
		var wg sync.WaitGroup
		wg.Go(func() {
			pay(b, first, func() { close(inside); <-resume })
		})
		<-inside
		wg.Go(func() {
			pay(b, second, func() { close(begun) })
		})
		defer wg.Wait()
		defer close(resume)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-begun:
				return "a second payment was made while the first was in the middle"
			case <-tick.C:
				if second.Stats().Waiting == 1 {
					return ""
				}
			}
		}
	},
	"an overtaken holder": func(b *bank, pay payer) string {
		first, second := b.locker(), b.locker()
		err := pay(b, first, func() {
			b.backend.Faults().Lose("bank/7")
			if err := pay(b, second, nil); err != nil {
				b.t.Error(err)
			}
		})
		return b.overwritten(err, 90)
	},
	"a writer without the lock": func(b *bank, pay payer) string {
		const form = 70 // not what the payment will write: MySQL counts rows that change
		return b.overwritten(pay(b, b.locker(), func() {
			if err := b.rows.Update(b.t.Context(), b.guarded, 7, b.version(), b.set(),
				form); err != nil {
				b.t.Error(err)
			}
		}), form)
	},
}

// overwritten complains unless the refused payment got a conflict, and what the other one wrote is
// there.
func (b *bank) overwritten(err error, want int) string {
	if balance := b.balance(); balance != want {
		return fmt.Sprintf("the balance is %d, and %d was overwritten", balance, want)
	}
	if !errors.Is(err, sqlfence.ErrConflict) {
		return fmt.Sprintf("of two payments one is in the books, and nobody is told: %v", err)
	}
	return ""
}

// TestVersionedKeepsItsRules runs the rules on the helper, on each half of it alone, and on broken
// ones.
func TestVersionedKeepsItsRules(t *testing.T) {
	for _, d := range databases {
		for name, c := range map[string]struct {
			pay    payer
			edit   func(string) string
			broken string // the rule that has to notice
		}{
			"both":             {withBoth, nil, ""},
			"the lock alone":   {withLock, nil, "an overtaken holder"},
			"the lock, a form": {withLock, nil, "a writer without the lock"},
			"lock not asked":   {withVersion, nil, "one at a time"},
			"version not compared": {withBoth, replace("AND version = ", "AND 0 <= "),
				"an overtaken holder"},
			"version not raised": {withBoth, replace("version + 1", "version"),
				"a writer without the lock"},
		} {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				for rule, check := range rules {
					if c.broken != "" && c.broken != rule {
						continue
					}
					b := newBank(t, d)
					b.guarded = edited(t, b.db, c.edit)
					if complaint := check(b, c.pay); (complaint != "") != (c.broken != "") {
						t.Errorf("%s: %q; to be noticed: %v", rule, complaint, c.broken != "")
					}
				}
			})
		}
	}
}

// exampleBank is an account with 100 in a database in memory, and a locker.
func exampleBank() (*sql.DB, *holdfast.Locker) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1) // each connection would have a database of its own
	if _, err := db.Exec(`CREATE TABLE accounts (id integer PRIMARY KEY, balance integer,
		version integer NOT NULL DEFAULT 0); INSERT INTO accounts VALUES (7, 100, 0)`); err != nil {
		log.Fatal(err)
	}
	locker, err := holdfast.New(memhold.New())
	if err != nil {
		log.Fatal(err)
	}
	return db, locker
}

// Example_lockAndVersion runs on SQLite. A program changes a row under the lock. A form that a
// person filled in meanwhile comes too late.
func Example_lockAndVersion() {
	db, locker := exampleBank()
	defer db.Close()
	defer locker.Close()
	ctx := context.Background()
	rows := sqlfence.Versioned{Dialect: sqlfence.SQLite, Table: "accounts"}

	var form int64 // the version that the person saw
	if err := db.QueryRow("SELECT version FROM accounts WHERE id = 7").Scan(&form); err != nil {
		log.Fatal(err)
	}
	err := rows.Do(ctx, locker, db, 7, func(ctx context.Context) (string, []any, error) {
		// what takes its time, and must not be done by two at once
		return "balance = balance - ?", []any{10}, nil
	})
	fmt.Println("program:", err)

	err = rows.Update(ctx, db, 7, form, "balance = ?", 200)
	fmt.Println("form is in conflict:", errors.Is(err, sqlfence.ErrConflict))

	var balance int
	if err := db.QueryRow("SELECT balance FROM accounts WHERE id = 7").Scan(&balance); err != nil {
		log.Fatal(err)
	}
	fmt.Println("balance:", balance)
	// Output:
	// program: <nil>
	// form is in conflict: true
	// balance: 90
}
