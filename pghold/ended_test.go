//go:build unix

package pghold_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A release that says that a request of its claim may still arrive has that request refused, for
// the time that it says: whether the claim had the key or not, for a lock and for a reader, and
// also if others have had the key meanwhile.
//
// Fails if the code is broken like this: acquire does not look at ended; release does not set
// crowded; settle does not look at ended.
func TestLateRequestIsRefused(t *testing.T) {
	pool := connect(t)
	for name, shared := range map[string]bool{"exclusive": false, "shared": true} {
		for _, held := range []bool{false, true} {
			for _, others := range []bool{false, true} {
				key := name + time.Now().String()
				if held {
					if state := asked(t, pool, key, "late", shared); state != "held" {
						t.Fatalf("%s: acquire says %q, want held", name, state)
					}
				}
				end(t, pool, key, "late", time.Hour)
				if others {
					if state := asked(t, pool, key, "other", shared); state != "held" {
						t.Errorf("%s: another's acquire says %q, want held", name, state)
					}
					end(t, pool, key, "other", 0)
				}
				if state := asked(t, pool, key, "late", shared); state != "busy" {
					t.Errorf("%s, held before: %v, another meanwhile: %v: the late request is "+
						"told %q, want busy", name, held, others, state)
				}
				if state := asked(t, pool, key, "third", false); state != "held" {
					t.Errorf("%s: a third's acquire says %q, want held: nobody has the key", name,
						state)
				}
				end(t, pool, key, "third", 0)
				end(t, pool, key, "late", time.Microsecond)
				if state := asked(t, pool, key, "late", shared); state != "held" {
					t.Errorf("%s: told %q after the time for which it is refused, want held", name,
						state)
				}
			}
		}
	}
}

// asked calls the function of the database for a claim of an hour that does not queue, and returns
// what it says.
func asked(t *testing.T, pool *pgxpool.Pool, key, owner string, shared bool) (state string) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), `SELECT a.state FROM
		holdfast.acquire($1, $2, $3, 0, 1, 1, NULL, $4, '', false, 0, '') AS a`,
		[]byte(key), []byte(owner), time.Hour.Microseconds(), shared).Scan(&state); err != nil {
		t.Fatal(err)
	}
	return state
}

// end releases a claim, whose late requests are then refused for so long.
func end(t *testing.T, pool *pgxpool.Pool, key, owner string, late time.Duration) {
	t.Helper()
	run(t, pool, "SELECT holdfast.release($1, $2, $3, '')", []byte(key), []byte(owner),
		late.Microseconds())
}
