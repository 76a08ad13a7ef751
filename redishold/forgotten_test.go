package redishold_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

// A server that was a replica for a while says so for an hour, unless it is set otherwise. If
// nobody asks it in that time, and the guard is longer, it still takes no part for the guard: the
// record that it has is another server's.
func TestR32_ReplicaIsForgotten(t *testing.T) {
	t.Parallel()
	const guard = 3 * time.Hour
	server, clock := aged(t)
	other, otherClock := aged(t, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
	clock.Step(t, 4*time.Hour) // both have been there for five hours
	otherClock.Step(t, 4*time.Hour)
	a := open(t, server.URL())
	a.Guard(guard)
	first := newClaim("k")
	first.TTL = guard
	mustBe(t, "acquire", driver.Held)(a.Acquire(t.Context(), first))
	a.Close()
	replicate(t, server, other)
	clock.Step(t, 62*time.Minute) // a third of the lease
	testserver.Eventually(t, "the server has forgotten that it was a replica", func() error {
		id := server.Info(t, "master_replid2")
		return testserver.Not(id == "0000000000000000000000000000000000000000", "%s", id)
	})
	b := open(t, server.URL())
	b.Guard(guard)
	quarantined(t, b)
}

// A server gets back a copy of its own data, which another one has kept: for a while it is the
// replica of what was its replica. The record in the copy is of this very run, and older than the
// guard, but the lock that was taken since is not in the copy. The name of the history has changed.
func TestR32_ReplicaOfItsOwnCopy(t *testing.T) {
	t.Parallel()
	const guard = 3 * time.Hour
	promptly := redistest.WithArgs("--repl-diskless-sync-delay", "0")
	server, clock := aged(t, promptly)
	copied := redistest.Start(t, promptly)
	host, port, _ := net.SplitHostPort(server.Addr)
	copied.Do(t, "REPLICAOF", host, port)
	linked := func() {
		t.Helper()
		testserver.Eventually(t, "the replica has the data", func() error {
			status := copied.Info(t, "master_link_status")
			return testserver.Not(status == "up", "link is %s", status)
		})
	}
	linked()
	remember(t, server) // its first replica has begun a new history
	clock.Step(t, 4*time.Hour)
	linked()
	testserver.Eventually(t, "the record is copied", func() error {
		record := server.String(t, "GET", "holdfast:m:{holdfast:s}")
		other := copied.String(t, "GET", "holdfast:m:{holdfast:s}")
		return testserver.Not(record == other && strings.HasSuffix(record,
			server.Info(t, "run_id")+" "+server.Info(t, "master_replid")), "%q and %q", record,
			other)
	})
	copied.Do(t, "REPLICAOF", "NO", "ONE")
	a := open(t, server.URL())
	a.Guard(guard)
	first := newClaim("k")
	first.TTL = guard
	mustBe(t, "acquire", driver.Held)(a.Acquire(t.Context(), first))
	a.Close()
	replicate(t, server, copied)
	clock.Step(t, 62*time.Minute) // a third of the lease
	testserver.Eventually(t, "the server has forgotten that it was a replica", func() error {
		id := server.Info(t, "master_replid2")
		return testserver.Not(id == "0000000000000000000000000000000000000000", "%s", id)
	})
	b := open(t, server.URL())
	b.Guard(guard)
	quarantined(t, b)
}

// A database that was used in an earlier run of the server, and in none since, takes the place of
// the one in use, while nobody is connected. Its record is older than the guard, but the server
// still takes no part for the guard: a restart alone would look the same.
func TestR32_SwapWithADatabaseOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	server := redistest.Start(t, redistest.WithClock(clock), redistest.WithAOF("always"))
	before := open(t, server.URL()+"/1")
	before.Guard(testGuard)
	quarantined(t, before)
	before.Close()
	server.Kill()
	server.Run(t)
	remember(t, server)
	clock.Step(t, testAge)
	testserver.Eventually(t, "the server has read its clock", func() error {
		up := server.Info(t, "uptime_in_seconds")
		return testserver.Not(len(up) == len("3600"), "up for %s s", up)
	})
	a := open(t, server.URL())
	a.Guard(testGuard)
	first := newClaim("k")
	first.TTL = testGuard
	mustBe(t, "acquire", driver.Held)(a.Acquire(t.Context(), first))
	a.Close()
	server.Do(t, "SWAPDB", "0", "1")
	b := open(t, server.URL())
	b.Guard(testGuard)
	quarantined(t, b)
}

// A server that starts as a replica goes on with the history that its data come from, also if they
// are its own. If it takes writes and its primary is not there, its clients cannot tell it from a
// primary. So a record of an earlier run may have the name of the present history: what tells them
// apart is the run.
func TestR32_RecordOfAnEarlierRunOfTheSameHistory(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	server := redistest.Start(t, redistest.WithClock(clock),
		redistest.WithArgs("--dbfilename", "dump.rdb", "--repl-diskless-sync-delay", "0"))
	// A history is stored with the data only if there has been a replica.
	follower := redistest.Start(t)
	host, port, _ := net.SplitHostPort(server.Addr)
	follower.Do(t, "REPLICAOF", host, port)
	testserver.Eventually(t, "there is a replica", func() error {
		status := follower.Info(t, "master_link_status")
		return testserver.Not(status == "up", "link is %s", status)
	})
	follower.Do(t, "REPLICAOF", "NO", "ONE")
	database := func(n int) *redishold.Backend {
		b := newShared(t, rueidis.ClientOption{InitAddress: []string{server.Addr}, SelectDB: n})
		b.Guard(testGuard)
		return b
	}
	quarantined(t, database(1))
	history := server.Info(t, "master_replid")
	testserver.Eventually(t, "no other SAVE is under way", func() error {
		busy := server.Info(t, "rdb_bgsave_in_progress")
		return testserver.Not(busy == "0", "rdb_bgsave_in_progress is %s", busy)
	})
	server.Do(t, "SAVE")
	server.Kill()
	server.Change(redistest.WithArgs("--replicaof", "127.0.0.1", "1", "--replica-read-only", "no"))
	server.Run(t)
	if server.Info(t, "master_replid") != history {
		t.Fatal("this is not the case that the test is about: another history")
	}
	quarantined(t, database(0))
	clock.Step(t, testAge)
	testserver.Eventually(t, "the server has read its clock", func() error {
		up := server.Info(t, "uptime_in_seconds")
		return testserver.Not(len(up) == len("3600"), "up for %s s", up)
	})
	first := newClaim("k")
	first.TTL = testGuard
	mustBe(t, "acquire", driver.Held)(database(0).Acquire(t.Context(), first))
	server.Do(t, "SWAPDB", "0", "1")
	quarantined(t, database(0))
}
