package sqltest_test

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// replace changes statements, for a mutant.
func replace(old, with string) func(string) string {
	return func(query string) string { return strings.ReplaceAll(query, old, with) }
}

var condition = regexp.MustCompile(`(?s) AND \(fence IS NULL.*$`)

// TestMutantsOfColumn runs the guard with statements that are broken, on each database.
func TestMutantsOfColumn(t *testing.T) {
	for _, d := range databases {
		for name, m := range map[string]struct {
			edit func(string) string
			red  string
		}{
			"smaller instead of smaller or equal": {replace("<=", "<"),
				"Order/AcceptsTheSameAgain"},
			"no condition": {func(q string) string {
				return condition.ReplaceAllString(q, dropped(d))
			}, "Order/RefusesSmaller"},
		} {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				fencetest.Catches(t, d.column(d.columnWrite, m.edit), m.red)
			})
		}
		t.Run(d.name+"/looks first and writes later", func(t *testing.T) {
			fencetest.Catches(t, d.column(d.looksFirst, nil), "Concurrency/OlderThatBeganFirst")
		})
	}
}

// dropped replaces a condition, and keeps the number of arguments.
func dropped(d database) string {
	if d.dialect == sqlfence.Postgres {
		return ""
	}
	return " AND ? > 0"
}

// looksFirst compares in the program.
func (d database) looksFirst(ctx context.Context, db *sql.DB, resource string, token fence.Token,
	value string, pause func()) error {
	var newest fence.Token
	if err := db.QueryRowContext(ctx, "SELECT fence FROM accounts WHERE id = "+d.place(1),
		resource).Scan(&newest); err != nil {
		return err
	}
	if newest > token {
		return &fence.StaleError{Resource: resource, Token: token, Newest: newest}
	}
	if pause != nil {
		pause()
	}
	_, err := db.ExecContext(ctx, "UPDATE accounts SET value = "+d.place(1)+", fence = "+d.place(2)+
		" WHERE id = "+d.place(3), value, int64(token), resource)
	return err
}

// TestMutantsOfTable does the same with the guard table.
func TestMutantsOfTable(t *testing.T) {
	for _, d := range databases {
		guard := sqlfence.Table{Dialect: d.dialect}
		nothing := func(*sql.Tx) error { return nil }
		// For the other databases, smaller instead of smaller or equal is no mutant: the row is
		// still locked, and then read.
		edits := map[string]map[string]func(string) string{
			"Order/RefusesSmaller": {
				"takes any token": replace(" WHERE stored.token <= excluded.token", ""),
			},
		}
		if d.dialect == sqlfence.MySQL {
			edits = map[string]map[string]func(string) string{
				"Order/RefusesSmaller": {"takes any token": replace("GREATEST(token, ?)",
					"?")},
				"Order/AcceptsTheSameAgain": {"smaller instead of smaller or equal": replace(
					"GREATEST(token, ?)",
					"IF(token < ?, VALUES(token), token + (token = VALUES(token)))")},
			}
		}
		for red, mutants := range edits {
			for name, edit := range mutants {
				t.Run(d.name+"/"+name, func(t *testing.T) {
					fencetest.Catches(t, d.table(d.tableWrite, edit), red)
				})
			}
		}
		t.Run(d.name+"/no row lock", func(t *testing.T) {
			fencetest.Catches(t,
				d.table(func(ctx context.Context, db *sql.DB, resource string, token fence.Token,
					value string, pause func()) error {
					// committed, and so let go
					if err := guard.Do(ctx, db, resource, token, nothing); err != nil {
						return err
					}
					if pause != nil {
						pause()
					}
					_, err := db.ExecContext(ctx, d.upsert("things"), resource, value)
					return err
				}, nil), "Concurrency/OlderThatBeganFirst",
				"Concurrency/OlderThatBeganFirstOnANewResource")
		})
		t.Run(d.name+"/check after the write", func(t *testing.T) {
			fencetest.Catches(t,
				d.table(func(ctx context.Context, db *sql.DB, resource string, token fence.Token,
					value string, pause func()) error {
					if _, err := db.ExecContext(ctx, d.upsert("things"), resource,
						value); err != nil {
						return err
					}
					return guard.Do(ctx, db, resource, token, nothing)
				}, nil), "Order/RefusesSmaller")
		})
	}
}

// TestMutantsOfTrigger does the same with triggers.
func TestMutantsOfTrigger(t *testing.T) {
	for _, d := range databases {
		for name, m := range map[string]struct {
			edit func(string) string
			red  string
		}{
			"larger or equal instead of larger": {func(q string) string {
				return strings.NewReplacer("OLD.fence > ", "OLD.fence >= ", "fence > (",
					"fence >= (").Replace(q)
			}, "Order/AcceptsTheSameAgain"},
			"does not set the column": {func(q string) string {
				return strings.NewReplacer("NEW.fence := token;", "",
					"SET NEW.fence = @holdfast_token;", "",
					"UPDATE orders SET fence = (SELECT max(token) FROM holdfast_token)\n",
					"UPDATE orders SET fence = NULL\n").Replace(q)
			}, "Order/RefusesSmaller"},
		} {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				fencetest.Catches(t, d.trigger(d.triggerWrite, m.edit), m.red)
			})
		}
	}
}
