package sqlfence_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// What is refused here needs no database: nothing may be sent to one.

func TestNamesThatAreNone(t *testing.T) {
	for _, name := range []string{"", "a b", "a;b", "a--", "1a", "a.b.c", `"a`, `a"b"`, "`a", "a'",
		"\"a\x00\"", "a."} {
		column := sqlfence.Column{Dialect: sqlfence.SQLite, Table: name}
		if err := column.Update(t.Context(), (*sql.DB)(nil), 1, 1, ""); !errors.Is(err,
			fence.ErrInvalid) {
			t.Errorf("Update of table %q = %v; want ErrInvalid", name, err)
		}
		if _, err := (sqlfence.Trigger{Dialect: sqlfence.SQLite,
			Table: name}).Statements(); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("Statements for table %q = %v; want ErrInvalid", name, err)
		}
		if name == "" {
			continue // the default
		}
		table := sqlfence.Table{Dialect: sqlfence.SQLite, Name: name}
		if err := table.Do(t.Context(), nil, "r", 1, nil); !errors.Is(err, fence.ErrInvalid) ||
			!strings.Contains(err.Error(), "plain or quoted") {
			t.Errorf("Do on table %q = %v; want ErrInvalid that says what is allowed", name, err)
		}
	}
	for _, name := range []string{"a", "_a1", "s.a", `"order"`, "`order`", `s."a b"`} {
		if _, err := (sqlfence.Trigger{Dialect: sqlfence.MySQL,
			Table: name}).Statements(); err != nil {
			t.Errorf("Statements for table %q = %v", name, err)
		}
	}
}

func TestDialectThatIsNone(t *testing.T) {
	for _, dialect := range []sqlfence.Dialect{0, -1, 4} {
		_, statements := sqlfence.Trigger{Dialect: dialect, Table: "a"}.Statements()
		for what, err := range map[string]error{
			"Dialect.Do": dialect.Do(t.Context(), nil, 1, nil),
			"Table.Do":   sqlfence.Table{Dialect: dialect}.Do(t.Context(), nil, "r", 1, nil),
			"Column.Update": sqlfence.Column{Dialect: dialect, Table: "a"}.Update(t.Context(),
				(*sql.DB)(nil), 1, 1, ""),
			"Statements": statements,
		} {
			if !errors.Is(err, fence.ErrInvalid) ||
				!strings.Contains(err.Error(), dialect.String()) {
				t.Errorf("%s with %v = %v; want ErrInvalid that names it", what, dialect, err)
			}
		}
	}
}

func TestTokensThatAreNone(t *testing.T) {
	for _, token := range []fence.Token{0, fence.MaxToken + 1} {
		for what, err := range map[string]error{
			"Dialect.Do": sqlfence.Postgres.Do(t.Context(), nil, token, nil),
			"Table.Do": sqlfence.Table{Dialect: sqlfence.MySQL}.Do(t.Context(), nil, "r",
				token, nil),
			"Column.Update": sqlfence.Column{Dialect: sqlfence.MySQL,
				Table: "a"}.Update(t.Context(), (*sql.DB)(nil), 1, token, ""),
		} {
			if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), token.String()) {
				t.Errorf("%s with token %d = %v; want ErrInvalid that names it", what, token, err)
			}
		}
	}
}
