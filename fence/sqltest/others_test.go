package sqltest_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// TestColumnWithTriggersOfOthers has triggers on the table: a bare one, an audit and a sequence.
// After them, what LAST_INSERT_ID was given is lost.
func TestColumnWithTriggersOfOthers(t *testing.T) {
	for _, d := range []database{onMariaDB, onMariaDBFoundRows} {
		for name, body := range map[string]string{
			"audit":    "INSERT INTO audit (what) VALUES ('x')",
			"bare":     "SET @nothing = 1",
			"sequence": "UPDATE seq SET n = LAST_INSERT_ID(n + 1)",
		} {
			for _, when := range []string{"BEFORE", "AFTER"} {
				t.Run(d.name+"/"+name+" "+when, func(t *testing.T) {
					db := d.connect(t)
					run(t, db, "DROP TABLE IF EXISTS accounts, audit, seq",
						"CREATE TABLE accounts (id int PRIMARY KEY, value text, fence bigint)",
						"INSERT INTO accounts VALUES (1, 'a', NULL)",
						"CREATE TABLE audit (id int AUTO_INCREMENT PRIMARY KEY, what text) AUTO_INCREMENT = 100",
						"CREATE TABLE seq (n bigint)", "INSERT INTO seq VALUES (7)",
						"CREATE TRIGGER others "+when+" UPDATE ON accounts FOR EACH ROW "+body)
					accounts := sqlfence.Column{Dialect: d.dialect, Table: "accounts"}
					if err := accounts.Update(t.Context(), db, 1, 5, "value = 'b'"); err != nil {
						t.Errorf("Update = %v", err)
					}
					err := accounts.Update(t.Context(), db, 1, 5, "value = 'b'") // as it is
					if found := d.parameters != ""; found && err != nil || err != nil &&
						!errors.Is(err, fence.ErrUnknown) {
						t.Errorf("the same Update again = %v", err)
					}
					if err := accounts.Update(t.Context(), db, 1, 4, "value = 'c'"); !errors.Is(err,
						fence.ErrStale) {
						t.Errorf("Update with an older token = %v; want ErrStale", err)
					}
					if err := accounts.Update(t.Context(), db, 2, 5, "value = 'c'"); !errors.Is(err,
						fence.ErrNotFound) {
						t.Errorf("Update of no row = %v; want ErrNotFound", err)
					}
				})
			}
		}
	}
}
