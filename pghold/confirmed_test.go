//go:build unix

package pghold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
	"github.com/holdfast-go/holdfast/pghold"
)

// TestNoticeOfWhatNoStandbyHas: no standby confirms a handover, and the caller gives its request
// up. Then PostgreSQL ends its wait, shows what it has done, and notifies the waiter. But a standby
// that takes over knows nothing of the handover, and would grant the key to another claim. So the
// waiter has to ask, and gets no answer before a standby has both.
func TestNoticeOfWhatNoStandbyHas(t *testing.T) {
	s, err := postgrestest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Remove() })
	waiter := open(t, urlOf(s, "&create=true"))
	// One session, so that it is known when it has heard of the standby.
	held, err := pgxpool.New(t.Context(), urlOf(s, "&application_name=holder&pool_max_conns=1"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	holder, err := pghold.New(held)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	notices := make(chan driver.Notice, 10)
	defer waiter.Notify(func(n driver.Notice) { notices <- n })()
	pool, err := pgxpool.New(t.Context(), urlOf(s, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	a, b := claim("k"), claim("k")
	b.Queue = true
	ask(t, holder, a, driver.Held)
	ask(t, waiter, b, driver.Busy)

	standby := func(names string) {
		t.Helper()
		run(t, pool, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'")
		run(t, pool, "SELECT pg_reload_conf()")
		testserver.Eventually(t, "the server waits for standbys", func() error {
			var here, there string
			const show = "SHOW synchronous_standby_names"
			return errors.Join(pool.QueryRow(t.Context(), show).Scan(&here),
				held.QueryRow(t.Context(), show).Scan(&there),
				testserver.Not(here == names && there == names, "%q and %q", here, there))
		})
	}
	standby("nobody")
	// Sessions know it before the process that has their commits wait for standbys.
	testserver.Eventually(t, "commits wait for a standby", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := pool.Exec(ctx, "COMMENT ON SCHEMA holdfast IS 'a commit'")
		return testserver.Not(ctx.Err() != nil, "it is over: %v", err)
	})
	released := make(chan struct{})
	go func() {
		defer close(released)
		holder.Release(t.Context(), a)
	}()
	testserver.Eventually(t, "the handover waits for a standby, and is cancelled", func() error {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(pg_cancel_backend(pid)) "+
			"FROM pg_stat_activity WHERE application_name = 'holder' AND wait_event = 'SyncRep'",
		).Scan(&n)
		return errors.Join(err, testserver.Not(n > 0, "it does not wait"))
	})
	n := <-notices
	if n.Kind == driver.Granted || n.Owner != b.Owner {
		t.Errorf("the waiter was told %+v", n)
	}
	standby("")
	<-released
	ask(t, waiter, b, driver.Held)
	release(t, waiter, b, driver.Held)
}
