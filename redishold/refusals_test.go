package redishold_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// calls are the calls that change something, each with a claim of its own.
func calls(b *redishold.Backend, held driver.Claim) map[string]func(context.Context) error {
	renew := func(claim driver.Claim) func(context.Context) error {
		return func(ctx context.Context) error {
			results, err := b.Renew(ctx, []driver.Claim{claim})
			if err == nil {
				err = results[0].Err
			}
			return err
		}
	}
	acquire := func(claim driver.Claim) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := b.Acquire(ctx, claim)
			return err
		}
	}
	free, shared, turn := newClaim("free"), newClaim("free"), held
	shared.Shared, turn.Block = true, 4
	return map[string]func(context.Context) error{
		"Acquire":         acquire(free),
		"Acquire, shared": acquire(shared),
		"Renew":           renew(held),
		"Renew, fresh":    renew(turn),
		"Release": func(ctx context.Context) error {
			_, err := b.Release(ctx, held)
			return err
		},
	}
}

// refusesAll fails the test unless every call reports in these words that the server has refused it
// for now, and the server has done nothing.
func refusesAll(t *testing.T, b *redishold.Backend, held driver.Claim, code string) {
	t.Helper()
	for name, call := range calls(b, held) {
		if err := call(t.Context()); !errors.Is(err, driver.ErrUnavailable) ||
			errors.Is(err, driver.ErrUnknown) || driver.Permanent(err) ||
			!protocol.IsServerError(err, code) {
			t.Errorf("%s: %v; want %s", name, err, code)
		}
	}
}

// unchanged fails the test unless the server has what it had before the refusals.
func unchanged(t *testing.T, server *redistest.Server, held driver.Claim) {
	t.Helper()
	if got := server.String(t, "GET", held.Key); got != held.Owner {
		t.Errorf("%q holds the lock; want %q", got, held.Owner)
	}
	if n := server.Int(t, "EXISTS", "free"); n != 0 {
		t.Error("a lock was acquired")
	}
}

// both are Backends of both kinds on the server.
func both(t *testing.T, server *redistest.Server) map[string]*redishold.Backend {
	t.Helper()
	all := others(t, server)
	delete(all, "read only")
	return all
}

// While another client's script runs for too long, the server refuses everything and does nothing.
// A script of ours that could be killed has done nothing either.
func TestServerBusyWithAScript(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--lua-time-limit", "1"))
	backends := both(t, server)
	held := newClaim("held")
	for _, b := range backends {
		granted(t, b, held)
	}
	other, err := server.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	killed := make(chan error, 1)
	go func() {
		_, err := other.Try("EVAL", "while true do end", "0")
		killed <- err
	}()
	testserver.Eventually(t, "the server is busy", func() error {
		_, err := server.Try("PING")
		return testserver.Not(err != nil && strings.HasPrefix(err.Error(), "BUSY"), "%v", err)
	})
	for name, b := range backends {
		t.Run(name, func(t *testing.T) { refusesAll(t, b, held, "BUSY") })
	}
	server.Do(t, "SCRIPT", "KILL")
	if err := <-killed; err == nil || protocol.ServerFailure("", err.Error(), true).Maybe {
		t.Errorf("a script that was killed may have done something: %v", err)
	}
	unchanged(t, server, held)
	for _, b := range backends {
		granted(t, b, held)
	}
}

// A server whose last snapshot failed refuses what writes. It renews and releases nothing either.
func TestServerCannotSave(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	backends := both(t, server)
	held := newClaim("held")
	for _, b := range backends {
		granted(t, b, held)
	}
	// A snapshot takes the place of the one before, and cannot take that of a directory.
	dir := filepath.Join(server.Dir, "dump.rdb")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	server.Do(t, "CONFIG", "SET", "save", "1000000 1000000")
	server.Do(t, "BGSAVE")
	testserver.Eventually(t, "the snapshot has failed", func() error {
		status := server.Info(t, "rdb_last_bgsave_status")
		return testserver.Not(status == "err", "%s", status)
	})
	for name, b := range backends {
		t.Run(name, func(t *testing.T) { refusesAll(t, b, held, "MISCONF") })
	}
	unchanged(t, server, held)
	server.Do(t, "CONFIG", "SET", "save", "")
	for _, b := range backends {
		granted(t, b, held)
	}
}

// If a right is taken away between two commands of one acquisition, the server has done the first,
// and the error says that it may have.
func TestRightTakenAwayMidway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do(t, append([]string{"ACL", "SETUSER", "locks"}, access(t)...)...)
	for name, b := range map[string]*redishold.Backend{
		"own connection": open(t, "redis://locks:secret@"+server.Addr),
		"shared client": newShared(t, rueidis.ClientOption{InitAddress: []string{server.Addr},
			Username: "locks", Password: "secret", DisableCache: true}),
	} {
		t.Run(name, func(t *testing.T) {
			server.Do(t, "ACL", "SETUSER", "locks", "+zadd")
			claim := newClaim("lock:k")
			granted(t, b, claim)
			mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
			server.Do(t, "ACL", "SETUSER", "locks", "-zadd")
			claim = newClaim("lock:k") // what was released may be remembered as ended
			_, err := b.Acquire(t.Context(), claim)
			if !errors.Is(err, driver.ErrUnknown) || !driver.Permanent(err) ||
				!protocol.IsServerError(err, "NOPERM") {
				t.Errorf("Acquire without the right to ZADD: %v", err)
			}
			if got := server.String(t, "GET", "lock:k"); got != claim.Owner {
				t.Errorf("%q holds the lock; want %q", got, claim.Owner)
			}
			mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
			server.Do(t, "ACL", "SETUSER", "locks", "-evalsha", "-eval")
			_, err = b.Release(t.Context(), claim)
			if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
				t.Errorf("Release without the right to EVALSHA: %v", err)
			}
			server.Do(t, "ACL", "SETUSER", "locks", "+evalsha", "+eval")
		})
	}
}
