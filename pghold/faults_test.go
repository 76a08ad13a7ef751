//go:build unix

package pghold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/pghold"
)

// atOnce has pgx send a statement without preparing it first, or only that would be kept back.
const atOnce = "&default_query_exec_mode=exec"

// stranded makes a call that has no answer, because its connection is given up, and keeps its
// request back. deliver has the server still serve the request.
func stranded(t *testing.T, p *proxy, call func(context.Context) error) (deliver func()) {
	t.Helper()
	pool := connect(t)
	const served = "FROM pg_stat_activity WHERE application_name = 'proxied'"
	var before []int32
	if err := pool.QueryRow(t.Context(), "SELECT coalesce(array_agg(pid), '{}') "+served).Scan(
		&before); err != nil {
		t.Fatal(err)
	}
	cut, pass := p.strand()
	failed := make(chan error, 1)
	go func() { failed <- call(context.Background()) }()
	cut()
	if err := <-failed; !errors.Is(err, driver.ErrUnknown) {
		t.Fatalf("a call over a connection that breaks: %v; want %v", err, driver.ErrUnknown)
	}
	return func() {
		t.Helper()
		pass()
		testserver.Eventually(t, "the request has been served", func() error {
			var n int
			err := pool.QueryRow(t.Context(), "SELECT count(*) "+served+" AND pid = ANY($1)",
				before).Scan(&n)
			return errors.Join(err, testserver.Not(n == 0, "%d connections are served", n))
		})
	}
}

// TestLateAcquireIsRefused: a request to acquire arrives after the release of its claim, because
// its connection was given up. It must not take the key.
func TestLateAcquireIsRefused(t *testing.T) {
	pool := connect(t)
	noneProxied(t, pool)
	run(t, pool, empty)
	p := newProxy(t, socketOf(running(t)))
	b := open(t, p.url()+atOnce)
	a := claim("k")
	deliver := stranded(t, p, func(ctx context.Context) error {
		_, err := b.Acquire(ctx, a)
		return err
	})
	release(t, b, a, driver.Lost)
	deliver()
	other := open(t, urlOf(running(t), ""))
	c := claim("k")
	ask(t, other, c, driver.Held)
	release(t, other, c, driver.Held)
}

// TestAskedAgainAfterItsEnd: a waiter over several nodes gives back what it may have got on a node,
// and asks again under the same owner value. A server that keeps out the late request serves that.
func TestAskedAgainAfterItsEnd(t *testing.T) {
	pool := connect(t)
	for name, shared := range map[string]bool{"exclusive": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			noneProxied(t, pool)
			run(t, pool, empty)
			p := newProxy(t, socketOf(running(t)))
			b := open(t, p.url()+atOnce)
			a := claim("k")
			a.Shared = shared
			deliver := stranded(t, p, func(ctx context.Context) error {
				_, err := b.Acquire(ctx, a)
				return err
			})
			release(t, b, a, driver.Lost)
			ask(t, b, a, driver.Held)
			release(t, b, a, driver.Held)
			deliver()
			other := claim("k")
			ask(t, b, other, driver.Held)
			ask(t, b, a, driver.Busy)
			release(t, b, other, driver.Held)
			ask(t, b, a, driver.Held)
			release(t, b, a, driver.Held)
		})
	}
}

// TestLateReleaseUndoesNoLaterGrant: a release arrives after its claim was asked for again, because
// its connection was given up. It must not take away what the claim has got since, which counts as
// a vote in package quorum.
func TestLateReleaseUndoesNoLaterGrant(t *testing.T) {
	pool := connect(t)
	for name, again := range map[string]struct {
		state  driver.State
		shared bool
	}{
		"held":   {driver.Held, false},
		"shared": {driver.Held, true},
		"waits":  {driver.Busy, false},
	} {
		t.Run(name, func(t *testing.T) {
			noneProxied(t, pool)
			run(t, pool, empty)
			p := newProxy(t, socketOf(running(t)))
			b, others := open(t, p.url()+atOnce), open(t, urlOf(running(t), ""))
			a, holder := queued("k"), claim("k")
			a.Shared = again.shared
			ask(t, b, a, driver.Held)
			deliver := stranded(t, p, func(ctx context.Context) error {
				_, err := b.Release(ctx, a)
				return err
			})
			if again.state == driver.Busy {
				run(t, pool, "UPDATE holdfast.locks SET owner = NULL")
				ask(t, others, holder, driver.Held)
			}
			ask(t, b, a, again.state)
			deliver()
			ask(t, others, claim("k"), driver.Busy)
			release(t, b, a, again.state)
			if again.state == driver.Busy {
				release(t, others, holder, driver.Held)
			}
			ask(t, others, claim("k"), driver.Held)
		})
	}
}

// TestCrash kills the server, or one of its processes. Then the server starts anew by itself. No
// lock is forgotten and tokens rise. Under a guard it takes no part for a while.
func TestCrash(t *testing.T) {
	s := running(t)
	pool := connect(t)
	for name, crash := range map[string]func(t *testing.T){
		"server": func(t *testing.T) {
			s.Kill()
			if err := s.Run(); err != nil {
				t.Fatal(err)
			}
		},
		"process": func(t *testing.T) {
			var pid, was, is int
			const checkpointer = "SELECT pid FROM pg_stat_activity " +
				"WHERE backend_type = 'checkpointer'"
			err := pool.QueryRow(t.Context(), "SELECT pg_backend_pid(), ("+checkpointer+")").Scan(
				&pid, &was)
			if err != nil {
				t.Fatal(err)
			}
			killProcess(t, pid)
			testserver.Eventually(t, "its processes are new", func() error {
				err := pool.QueryRow(t.Context(), checkpointer).Scan(&is)
				return errors.Join(err, testserver.Not(is != was, "the old one is there"))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool.Reset()
			run(t, pool, empty)
			b, guarded := open(t, urlOf(s, "")), open(t, urlOf(s, ""))
			guarded.Guard(time.Hour)
			run(t, pool, "DELETE FROM holdfast.run")
			run(t, pool, "INSERT INTO holdfast.run VALUES (true, pg_postmaster_start_time(), "+
				"clock_timestamp() - interval '2 hours')")
			a := claim("k")
			token := ask(t, b, a, driver.Held).Token
			ask(t, guarded, claim("k"), driver.Busy)
			crash(t)
			var quarantine *driver.QuarantineError
			testserver.Eventually(t, "it is in quarantine", func() error {
				r, err := guarded.Acquire(t.Context(), claim("k"))
				if err == nil {
					t.Fatalf("the answer in quarantine is %v", r.State)
				}
				return testserver.Not(errors.As(err, &quarantine), "%v", err)
			})
			testserver.Eventually(t, "it serves", func() error {
				r, err := b.Acquire(t.Context(), claim("k"))
				if err == nil && (r.State != driver.Busy || r.Holder != a.Owner) {
					t.Fatalf("after the crash the answer is %+v; want busy, held by %q", r, a.Owner)
				}
				return err
			})
			release(t, b, a, driver.Held)
			c := claim("k")
			if next := ask(t, b, c, driver.Held).Token; next <= token {
				t.Errorf("token %d follows %d", next, token)
			}
			release(t, b, c, driver.Held)
		})
	}
}

// TestWorkUnderFaults: two Lockers of the kernel count under a lock while connections break. Never
// are two inside at once, and no turn is lost.
func TestWorkUnderFaults(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	const each = 10
	inside, turns := make(chan struct{}, 1), 0
	done := make(chan error, 2)
	for range 2 {
		p := newProxy(t, socketOf(running(t)))
		locker, err := holdfast.New(open(t, p.url()), holdfast.WithTTL(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locker.Close() })
		go func() {
			for n := range each {
				if n%3 == 1 {
					p.cutReply()
				}
				err := locker.Do(t.Context(), "k", func(context.Context, *holdfast.Lock) error {
					select {
					case inside <- struct{}{}:
					default:
						return errors.New("somebody else is inside")
					}
					turns++
					<-inside
					return nil
				})
				if err != nil && !errors.Is(err, driver.ErrUnknown) {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if turns < each {
		t.Errorf("%d turns; want most of %d", turns, 2*each)
	}
}

// TestSweep removes rows of keys that are free, and no others; tokens rise all the same.
func TestSweep(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	b := open(t, urlOf(running(t), ""))
	free, held, shared, awaited := claim("free"), claim("held"), claim("shared"), claim("awaited")
	free.Token = 1 << 50
	shared.Shared = true
	token := ask(t, b, free, driver.Held).Token
	release(t, b, free, driver.Held)
	for _, c := range []driver.Claim{held, shared, awaited} {
		ask(t, b, c, driver.Held)
	}
	waiter := queued("awaited")
	ask(t, b, waiter, driver.Busy)
	run(t, pool, "UPDATE holdfast.locks SET owner = NULL, expires = clock_timestamp() "+
		"WHERE key = 'awaited'")
	sweep := func() (removed int) {
		testserver.Eventually(t, "something is removed", func() error {
			err := pool.QueryRow(t.Context(), "SELECT holdfast.sweep('1 microsecond')").Scan(&removed)
			return errors.Join(err, testserver.Not(removed > 0, "nothing"))
		})
		return removed
	}
	if n := sweep(); n != 1 {
		t.Errorf("%d rows are removed; want 1", n)
	}
	run(t, pool, "INSERT INTO holdfast.locks VALUES "+
		"('young', NULL, clock_timestamp() - interval '1 hour', 1, 1, false)")
	if n := sweep(); n != 1 { // a fence that is lower
		t.Errorf("%d rows are removed; want 1", n)
	}
	if next := ask(t, b, claim("free"), driver.Held).Token; next <= token {
		t.Errorf("token %d follows %d, whose row is gone", next, token)
	}
	ask(t, b, waiter, driver.Held)
	for _, c := range []driver.Claim{held, shared, waiter} {
		release(t, b, c, driver.Held)
	}
}

// A sweep waits neither for a key that somebody looks at, nor for another sweep.
func TestSweepWaitsForNobody(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	for _, key := range []string{"free", "looked at"} {
		run(t, pool, "INSERT INTO holdfast.locks VALUES ($1, NULL, "+
			"clock_timestamp() - interval '1 hour', 0, 0, false)", []byte(key))
	}
	for _, test := range []struct {
		lock string
		want int
	}{
		{"SELECT FROM holdfast.locks WHERE key = 'looked at' FOR UPDATE", 1},
		{"SELECT FROM holdfast.server FOR UPDATE", 0},
	} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		if _, err := tx.Exec(t.Context(), test.lock); err != nil {
			t.Fatal(err)
		}
		var removed int
		ctx, cancel := context.WithTimeout(t.Context(), testserver.Patience)
		defer cancel()
		if err := pool.QueryRow(ctx, "SELECT holdfast.sweep()").Scan(&removed); err != nil ||
			removed != test.want {
			t.Errorf("beside %s it removes %d, %v; want %d", test.lock, removed, err, test.want)
		}
		tx.Rollback(t.Context())
	}
}

// TestIsolation: at an isolation level whose statements see an old state, calls are refused, also
// for a key that needs no look at another table: its release needs one as soon as anybody waits.
func TestIsolation(t *testing.T) {
	connect(t)
	others := open(t, urlOf(running(t), ""))
	b := open(t, urlOf(running(t), "&default_transaction_isolation=repeatable%20read"))
	c := queued(fmt.Sprint("isolation", time.Now()))
	for _, key := range []string{"is new", "is free again"} {
		_, err := b.Acquire(t.Context(), c)
		if err == nil || !driver.Permanent(err) ||
			!strings.Contains(err.Error(), "read committed") {
			t.Errorf("Acquire when the key %s: %v; want an error that names the level it needs",
				key, err)
		}
		ask(t, others, c, driver.Held)
		release(t, others, c, driver.Held)
	}
	codes := checked(t, b)
	if len(codes) == 0 || codes[0] != "isolation" {
		t.Errorf("Check finds %q; want the isolation first", codes)
	}
}

// A request on a connection that was closed before it was sent has had no effect, and its error
// says so.
func TestRequestThatCouldNotBeSent(t *testing.T) {
	connect(t)
	config, err := pgxpool.ParseConfig(urlOf(running(t), ""))
	if err != nil {
		t.Fatal(err)
	}
	var closes atomic.Bool
	config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		if closes.Load() {
			conn.Close(ctx)
		}
		return true, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b, err := pghold.New(pool, pghold.WithoutNotices())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c := claim(fmt.Sprint("closed", time.Now()))
	ask(t, b, c, driver.Held)
	closes.Store(true)
	if _, err := b.Release(t.Context(), c); !errors.Is(err, driver.ErrUnavailable) ||
		errors.Is(err, driver.ErrUnknown) {
		t.Errorf("Release: %v; want %v", err, driver.ErrUnavailable)
	}
	closes.Store(false)
	release(t, b, c, driver.Held)
	b.Close()
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the pool of the application, after Close of the Backend: %v", err)
	}
}

// A Backend opens its connection for notices when a claim may have to wait, and not before.
func TestListensForThoseWhoWait(t *testing.T) {
	connect(t)
	b := open(t, urlOf(running(t), ""))
	defer b.Notify(func(driver.Notice) {})()
	c := claim(fmt.Sprint("heard", time.Now()))
	ask(t, b, c, driver.Held)
	if b.Hears() {
		t.Error("it listens, and nobody waits")
	}
	c.Queue = true
	testserver.Eventually(t, "it listens", func() error {
		ask(t, b, c, driver.Held)
		return testserver.Not(b.Hears(), "not yet")
	})
	release(t, b, c, driver.Held)
}

// TestCloseEndsCalls: Close ends the calls on a connection that is frozen.
func TestCloseEndsCalls(t *testing.T) {
	connect(t)
	p := newProxy(t, socketOf(running(t)))
	b := open(t, p.url())
	thaw := p.freeze()
	defer thaw()
	failed := make(chan error, 1)
	go func() {
		_, err := b.Acquire(context.Background(), claim("closing"))
		failed <- err
	}()
	b.Close()
	if err := <-failed; err == nil || !driver.Permanent(err) && !errors.Is(err,
		driver.ErrUnknown) {
		t.Errorf("Acquire while the backend is closed: %v", err)
	}
	if _, err := pghold.New(nil); !errors.Is(err, driver.ErrInvalid) ||
		!strings.Contains(err.Error(), "pool is nil: make one with pgxpool.New") {
		t.Errorf("New without a pool: %v", err)
	}
	if _, err := pghold.NewSQL(nil); !errors.Is(err, driver.ErrInvalid) ||
		!strings.Contains(err.Error(), "db is nil: open one with sql.Open") {
		t.Errorf("NewSQL without a database: %v", err)
	}
}
