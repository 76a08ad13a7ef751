package pgxfence_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
)

// refuses is the guards' own comparison.
var refuses = regexp.MustCompile(`CASE WHEN \S+ > `)

// mutant is a guard whose statements are broken, and the rule that has to notice.
type mutant struct {
	edit func(string) string
	red  string
}

var mutants = map[string]mutant{
	"smaller instead of smaller or equal": {func(query string) string {
		return regexp.MustCompile(`CASE WHEN (\S+) > `).ReplaceAllString(query,
			"CASE WHEN $1 >= ")
	}, "Order/AcceptsTheSameAgain"},
	"takes any token": {func(query string) string {
		return refuses.ReplaceAllString(query, "CASE WHEN 0 > ")
	}, "Order/RefusesSmaller"},
	"keeps the larger token and says nothing": {func(query string) string {
		return regexp.MustCompile(`THEN CAST\('holdfast: stale .* \|\| (\S+) AS bigint\) ELSE`).
			ReplaceAllString(query, "THEN $1 ELSE")
	}, "Order/RefusesSmaller"},
}

func TestMutantsOfColumn(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			fencetest.Catches(t, column(columnWrite, m.edit), m.red)
		})
	}
	t.Run("looks first and writes later", func(t *testing.T) {
		fencetest.Catches(t, column(looksFirst, nil), "Concurrency/OlderThatBeganFirst")
	})
}

// looksFirst compares in the program.
func looksFirst(ctx context.Context, db client, resource string, token fence.Token, value string,
	pause func()) error {
	var newest fence.Token
	if err := db.QueryRow(ctx, "SELECT fence FROM accounts WHERE id = $1",
		resource).Scan(&newest); err != nil {
		return err
	}
	if newest > token {
		return &fence.StaleError{Resource: resource, Token: token, Newest: newest}
	}
	if pause != nil {
		pause()
	}
	_, err := db.Exec(ctx, "UPDATE accounts SET value = $1, fence = $2 WHERE id = $3", value,
		int64(token), resource)
	return err
}

func TestMutantsOfTable(t *testing.T) {
	for how, w := range map[string]writer{"Do": tableWrite, "SendBatch": tableBatch} {
		for name, m := range mutants {
			t.Run(how+"/"+name, func(t *testing.T) {
				fencetest.Catches(t, table(w, m.edit), m.red)
			})
		}
	}
	nothing := func(pgx.Tx) error { return nil }
	t.Run("no row lock", func(t *testing.T) {
		fencetest.Catches(t, table(func(ctx context.Context, db client, resource string,
			token fence.Token, value string, pause func()) error {
			// committed, and so let go
			if err := (pgxfence.Table{}).Do(ctx, db, resource, token, nothing); err != nil {
				return err
			}
			if pause != nil {
				pause()
			}
			_, err := db.Exec(ctx, upsert("things"), resource, value)
			return err
		}, nil), "Concurrency/OlderThatBeganFirst", "Concurrency/OlderThatBeganFirstOnANewResource")
	})
	t.Run("check after the write", func(t *testing.T) {
		fencetest.Catches(t, table(func(ctx context.Context, db client, resource string,
			token fence.Token, value string, _ func()) error {
			if _, err := db.Exec(ctx, upsert("things"), resource, value); err != nil {
				return err
			}
			return pgxfence.Table{}.Do(ctx, db, resource, token, nothing)
		}, nil), "Order/RefusesSmaller")
	})
}

func TestMutantsOfTrigger(t *testing.T) {
	for name, m := range map[string]mutant{
		"larger or equal instead of larger": {replace("OLD.fence > ", "OLD.fence >= "),
			"Order/AcceptsTheSameAgain"},
		"does not set the column": {replace("NEW.fence := token;", ""), "Order/RefusesSmaller"},
	} {
		for how, w := range map[string]writer{"Do": triggerWrite, "SendBatch": triggerBatch} {
			t.Run(how+"/"+name, func(t *testing.T) {
				fencetest.Catches(t, trigger(w, m.edit), m.red)
			})
		}
	}
}
