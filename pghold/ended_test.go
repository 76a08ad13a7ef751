//go:build unix

package pghold_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A request that says that earlier requests of its claim may still arrive has those ignored, for a
// minute: whether the claim had the key or not, for a lock and for a reader, and also if others
// have had the key meanwhile. Later requests are served, and those of another client, such as a
// command that frees the key by the owner value.
//
// Fails if the code is broken like this: acquire or release does not look at ended, or not at the
// number, the client or the time there; it does not set crowded; settle does not look at ended.
func TestLateRequestIsIgnored(t *testing.T) {
	pool := connect(t)
	for name, shared := range map[string]bool{"exclusive": false, "shared": true} {
		for _, held := range []bool{false, true} {
			for _, others := range []bool{false, true} {
				name := fmt.Sprint(name, ", held before: ", held, ", others: ", others)
				t.Run(name, func(t *testing.T) {
					late := requests{t, pool, name + time.Now().String(), "late", "client", shared}
					other, command := late, late
					other.owner, other.shared, command.client = "other", false, "command"
					if held {
						late.acquire(1, 0, "held")
						late.release(3, 2, "held")
					} else {
						late.release(3, 2, "lost")
					}
					if others {
						other.acquire(4, 0, "held")
						other.release(5, 0, "held")
					}
					late.acquire(1, 0, "busy")
					late.acquire(2, 0, "busy")
					other.acquire(6, 0, "held") // nobody has the key
					late.acquire(7, 0, "busy")
					other.release(8, 0, "held")

					late.acquire(9, 0, "held")
					late.release(2, 0, "lost")
					late.acquire(11, 10, "held") // a release with number 10 is in doubt
					late.release(10, 0, "lost")
					other.acquire(12, 0, "busy")
					late.release(13, 0, "held")

					late.acquire(14, 0, "held")
					command.release(1, 0, "held")
					late.acquire(10, 0, "busy")
					over := func() {
						run(t, pool, "UPDATE holdfast.ended SET until = clock_timestamp() "+
							"WHERE key = $1", []byte(late.key))
					}
					over()
					late.acquire(10, 0, "held")
					late.release(10, 0, "held")
					late.acquire(16, 15, "held")
					over()
					late.release(15, 0, "held")
				})
			}
		}
	}
}

// What is late is remembered for a minute from when the last request told of it.
func TestHowLongLateRequestsAreIgnored(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	late := requests{t, pool, "k", "late", "client", false}
	for number := int64(2); number < 8; number += 2 {
		var now time.Time
		var from, to bool
		err := pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now)
		if number == 2 {
			late.release(number, number-1, "lost")
		} else {
			late.acquire(number, number-1, "held")
		}
		err = errors.Join(err, pool.QueryRow(t.Context(),
			`SELECT until >= $1::timestamptz + interval '1 minute',
				until <= clock_timestamp() + interval '1 minute' FROM holdfast.ended`,
			now).Scan(&from, &to))
		if err != nil || !from || !to {
			t.Errorf("after request %d: a minute at least %v, and at most %v, %v", number, from, to,
				err)
		}
	}
}

// requests calls the functions of the database for one claim of a client.
type requests struct {
	t                  *testing.T
	pool               *pgxpool.Pool
	key, owner, client string
	shared             bool
}

// acquire asks for an hour, and does not queue.
func (r requests) acquire(number, late int64, want string) {
	r.t.Helper()
	r.call(`SELECT a.state FROM holdfast.acquire($1, $2, 3600000000, 0, 1, 1, NULL, $3, $4, false,
		0, '', $5, $6) AS a`, want, []byte(r.key), []byte(r.owner), r.shared, r.client, number, late)
}

func (r requests) release(number, late int64, want string) {
	r.t.Helper()
	r.call("SELECT r.state FROM holdfast.release($1, $2, $3, $4, $5) AS r", want, []byte(r.key),
		[]byte(r.owner), number, late, r.client)
}

func (r requests) call(statement, want string, args ...any) {
	r.t.Helper()
	var state string
	if err := r.pool.QueryRow(context.Background(), statement, args...).Scan(&state); err != nil ||
		state != want {
		r.t.Errorf("%s is told %q, %v; want %s", r.owner, state, err, want)
	}
}

// What a server remembers of late requests is gone when it has no use any more: when anybody asks
// for the key, and with the key's row when that is swept, but not before.
func TestNothingStaysOfLateRequests(t *testing.T) {
	pool := connect(t)
	count := func(what string) (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM holdfast."+what).Scan(
			&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, asked := range map[string]bool{"by the next": true, "by the sweep": false} {
		t.Run(name, func(t *testing.T) {
			run(t, pool, empty)
			late := requests{t, pool, "k", "late", "client", false}
			other := late
			other.owner, other.client = "other", "another client"
			late.release(2, 1, "lost")
			run(t, pool, "SELECT holdfast.sweep('1 microsecond')")
			late.acquire(1, 0, "busy")
			run(t, pool, "UPDATE holdfast.ended SET until = clock_timestamp()")
			if asked {
				other.acquire(1, 0, "held")
				other.release(2, 0, "held")
				if n, crowded := count("ended"), count("locks WHERE crowded"); n+crowded > 0 {
					t.Errorf("%d rows about late requests are left, and %d keys look at them", n,
						crowded)
				}
			}
			testserver.Eventually(t, "the key is swept", func() error {
				run(t, pool, "SELECT holdfast.sweep('1 microsecond')")
				return testserver.Not(count("locks") == 0, "it is there")
			})
			if n := count("ended"); n > 0 {
				t.Errorf("%d rows about late requests are left", n)
			}
		})
	}
}

// One of a thousand releases sweeps, also of keys that are shared: otherwise a service that only
// reads would keep a row for each key for ever.
func TestEveryReleaseMaySweep(t *testing.T) {
	run(t, connect(t), empty)
	// In one session, which draws lots.
	pool, err := pgxpool.New(t.Context(), urlOf(running(t), "&pool_max_conns=1"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, shared := range map[string]bool{"exclusive": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			r := requests{t, pool, name, "owner", "client", shared}
			run(t, pool, "INSERT INTO holdfast.locks VALUES ($1, NULL, "+
				"clock_timestamp() - interval '1 hour', 0, 0, false)", []byte("old "+name))
			testserver.Eventually(t, "the old row is swept", func() error {
				r.acquire(1, 0, "held")
				run(t, pool, `DO $$ DECLARE seed float := 0; BEGIN
					LOOP
						seed := seed + 0.00001;
						PERFORM setseed(seed);
						EXIT WHEN random() < 0.001;
					END LOOP;
					PERFORM setseed(seed);
				END $$`)
				r.release(2, 0, "held")
				var left int
				err := pool.QueryRow(t.Context(), "SELECT count(*) FROM holdfast.locks "+
					"WHERE key = $1", []byte("old "+name)).Scan(&left)
				return errors.Join(err, testserver.Not(left == 0, "it is there"))
			})
		})
	}
}

// Two clients have late requests of one owner value: its own, and a command that frees the key by
// the owner value. What one tells the server about its late requests does not have the server
// forget what the other one has told.
func TestLateRequestsOfTwoClients(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	late := requests{t, pool, "k", "late", "client", false}
	command, other := late, late
	command.client, other.owner = "command", "other"
	late.acquire(2, 1, "held")
	command.release(2, 1, "held")
	late.acquire(1, 0, "busy")
	other.acquire(3, 0, "held")
	other.release(4, 0, "held")
	late.acquire(6, 5, "held")
	command.release(1, 0, "lost")
	other.acquire(7, 0, "busy")

	// What one tells of another claim does not matter either.
	another := late
	another.owner = "another"
	late.acquire(9, 8, "held")
	another.release(10, 1, "lost")
	late.release(8, 0, "lost")
	other.acquire(11, 0, "busy")
}

// A release of a lease that is over is told that the claim was lost, and one of a key that nobody
// knows leaves no row of it: otherwise it would have to be swept.
func TestReleaseOfWhatIsOver(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	r := requests{t, pool, "k", "owner", "client", false}
	rows := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM holdfast.locks").Scan(
			&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	r.release(1, 0, "lost")
	if n := rows(); n > 0 {
		t.Errorf("a release of an unknown key makes %d rows", n)
	}
	for late := range int64(2) { // with a late request the release looks at all the tables
		r.acquire(10*late+2, 0, "held")
		run(t, pool, "UPDATE holdfast.locks SET expires = clock_timestamp()")
		r.release(10*late+4, late*(10*late+3), "lost")
	}
}
