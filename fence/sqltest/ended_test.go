package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// TestNothingIsWrittenAfterADeadlock: a write meets a deadlock, for which MySQL rolls the whole
// transaction back. The write repeats its statement after a newer holder came.
func TestNothingIsWrittenAfterADeadlock(t *testing.T) {
	d := onMariaDB
	db := d.connect(t)
	guard := sqlfence.Table{Dialect: d.dialect}
	createThings(t, d, db, guard)
	run(t, db, "INSERT INTO things VALUES ('a', ''), ('b', '')")
	ctx := t.Context()
	// It writes rows that this guard does not protect. It writes more than the guard's transaction,
	// so that it is not the victim.
	other, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	for i := range 200 {
		if _, err := other.ExecContext(ctx, "INSERT INTO things VALUES (?, '')",
			fmt.Sprint("other", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.ExecContext(ctx,
		"UPDATE things SET value = 'other' WHERE id = 'b'"); err != nil {
		t.Fatal(err)
	}
	err = guard.Do(ctx, db, "r", 5, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx,
			"SELECT * FROM things WHERE id = 'a' FOR UPDATE"); err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() {
			_, err := other.ExecContext(ctx, "SELECT * FROM things WHERE id = 'a' FOR UPDATE")
			done <- err
		}()
		for waits := false; !waits; {
			var err error
			if waits, err = d.waits(db)(ctx); err != nil {
				return err
			}
		}
		const statement = "UPDATE things SET value = 'older' WHERE id = 'b'"
		if _, err := tx.ExecContext(ctx, statement); err == nil ||
			!strings.Contains(err.Error(), "1213") {
			t.Errorf("want a deadlock, got %v", err)
		}
		if err := errors.Join(<-done, other.Commit(), newer(ctx, guard, db, "b")); err != nil {
			t.Error(err)
		}
		// again, as MySQL's manual advises after a deadlock
		_, err := tx.ExecContext(ctx, statement)
		return err
	})
	if value, e := d.value(db, "things")(ctx, "b"); !errors.Is(err, fence.ErrUnknown) ||
		value != "newer" || e != nil {
		t.Errorf("Do with token 5 after 6 was accepted = %v; want ErrUnknown; the row is %q, %v",
			err, value, e)
	}
}

// newer writes as a holder that comes later.
func newer(ctx context.Context, guard sqlfence.Table, db *sql.DB, id string) error {
	return guard.Do(ctx, db, "r", 6, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE things SET value = 'newer' WHERE id = '"+id+"'")
		return err
	})
}

func createThings(t *testing.T, d database, db *sql.DB, guard sqlfence.Table) {
	t.Helper()
	run(t, db, "DROP TABLE IF EXISTS things", "CREATE TABLE things (id "+d.text()+
		" NOT NULL PRIMARY KEY, value text)",
		"DROP TABLE IF EXISTS holdfast_fence", guard.Schema())
}

// TestNothingIsWrittenAfterACommitInside has a statement in Do that MySQL commits by itself.
func TestNothingIsWrittenAfterACommitInside(t *testing.T) {
	d := onMariaDB
	db := d.connect(t)
	guard := sqlfence.Table{Dialect: d.dialect}
	broken := errors.New("broken")
	for _, end := range []error{nil, broken} {
		createThings(t, d, db, guard)
		run(t, db, "DROP TABLE IF EXISTS staging")
		err := guard.Do(t.Context(), db, "r", 5, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(t.Context(), "CREATE TABLE staging (id int)"); err != nil {
				return err
			}
			if _, err := tx.ExecContext(t.Context(),
				"INSERT INTO things VALUES ('a', 'written')"); err != nil {
				return err
			}
			return end
		})
		want := end
		if end == nil {
			want = fence.ErrUnknown
		}
		if value, e := d.value(db, "things")(t.Context(), "a"); value != "" || e != nil ||
			!errors.Is(err, want) {
			t.Errorf("Do = %v; want %v; the row is %q, %v", err, want, value, e)
		}
	}
}

// TestConnectionIsGivenBackAsItWas sees that the next user of the connection is not in a
// transaction that nobody commits.
func TestConnectionIsGivenBackAsItWas(t *testing.T) {
	d := onMariaDB
	db := d.connect(t)
	db.SetMaxOpenConns(1)
	guard := sqlfence.Table{Dialect: d.dialect}
	createThings(t, d, db, guard)
	broken := errors.New("broken")
	for _, autocommit := range []int{0, 1} {
		run(t, db, fmt.Sprint("SET autocommit = ", autocommit))
		for _, end := range []error{nil, broken} {
			if err := guard.Do(t.Context(), db, "r", 5, func(*sql.Tx) error {
				return end
			}); err != end {
				t.Fatal(err)
			}
			var n int
			if err := db.QueryRowContext(t.Context(), "SELECT @@autocommit").Scan(&n); err != nil ||
				n != autocommit {
				t.Errorf("after Do = %v autocommit is %d, %v; want %d", end, n, err, autocommit)
			}
		}
	}
	// A context that ends in the middle: what was written before must not be committed with the
	// session.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := guard.Do(ctx, db, "r", 5, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO things VALUES ('a', 'written')")
		cancel()
		return err
	})
	if value, e := d.value(db, "things")(t.Context(), "a"); err == nil || value != "" || e != nil {
		t.Errorf("Do = %v; the row is %q, %v", err, value, e)
	}
}

// TestUnknownAfterARollbackInside shows what the documentation of Do says of SQLite: a conflict
// clause ends the transaction, and what follows is written. So Do does not say that nothing was
// written.
func TestUnknownAfterARollbackInside(t *testing.T) {
	d := onSQLite
	db := d.connect(t)
	guard := sqlfence.Table{Dialect: d.dialect}
	createThings(t, d, db, guard)
	run(t, db, "INSERT INTO things VALUES ('a', '')")
	err := guard.Do(t.Context(), db, "r", 5, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(t.Context(),
			"INSERT OR ROLLBACK INTO things VALUES ('a', 'mine')"); err == nil {
			t.Error("a conflict is no error")
		}
		return nil
	})
	if !errors.Is(err, fence.ErrUnknown) {
		t.Errorf("Do = %v; want ErrUnknown", err)
	}
}

// TestSwallowedErrorIsNoUnknownOutcome has a write that overlooks the error of a statement, so that
// PostgreSQL answers COMMIT with ROLLBACK.
func TestSwallowedErrorIsNoUnknownOutcome(t *testing.T) {
	d := onPostgres
	db := d.connect(t)
	guard := sqlfence.Table{Dialect: d.dialect}
	createThings(t, d, db, guard)
	err := guard.Do(t.Context(), db, "r", 5, func(tx *sql.Tx) error {
		tx.ExecContext(t.Context(), "SELECT 1/0")
		return nil
	})
	if err == nil || errors.Is(err, fence.ErrUnknown) {
		t.Errorf("Do = %v; the database has said that it rolled back", err)
	}
}

// TestVersionedReasonIsNotOfTheSnapshot sees that the reason of a refusal is not read from the
// snapshot with which the transaction began.
func TestVersionedReasonIsNotOfTheSnapshot(t *testing.T) {
	d := onMariaDB
	db := d.connect(t)
	run(t, db, "DROP TABLE IF EXISTS accounts",
		"CREATE TABLE accounts (id int PRIMARY KEY, value text, version bigint NOT NULL)",
		"INSERT INTO accounts VALUES (1, 'a', 3), (2, 'a', 3)")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var n int
	// the snapshot
	if err := tx.QueryRowContext(t.Context(),
		"SELECT count(*) FROM accounts").Scan(&n); err != nil {
		t.Fatal(err)
	}
	run(t, db, "DELETE FROM accounts WHERE id = 1", "UPDATE accounts SET version = 4 WHERE id = 2",
		"INSERT INTO accounts VALUES (3, 'a', 7)")
	for id, want := range map[int]struct {
		err  error
		text string
	}{1: {fence.ErrNotFound, ""}, 2: {sqlfence.ErrConflict, "has 4"},
		3: {sqlfence.ErrConflict, "has 7"}} {
		err := sqlfence.Versioned{Dialect: d.dialect, Table: "accounts"}.Update(t.Context(), tx, id,
			3, "value = 'b'")
		if !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("row %d: %v; want %v, %q", id, err, want.err, want.text)
		}
	}
}
