//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

// ttl is so long that it never ends in a test.
const ttl = 10 * time.Minute

// open opens dir until the end of the test.
func open(t testing.TB, dir string, options ...filehold.Option) *filehold.Backend {
	t.Helper()
	b, err := filehold.Open(dir, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func claim(key string) driver.Claim {
	return driver.Claim{Key: key, Owner: driver.NewOwner(driver.OwnerSuffix("test")), TTL: ttl}
}

func queued(key string) driver.Claim {
	c := claim(key)
	c.Queue = true
	return c
}

// shared returns a claim that queues and shares.
func shared(key string) driver.Claim {
	c := queued(key)
	c.Shared = true
	return c
}

func acquire(t testing.TB, b driver.Backend, c driver.Claim) driver.Result {
	t.Helper()
	r, err := b.Acquire(context.Background(), c)
	if err != nil {
		t.Fatalf("acquire %q: %v", c.Key, err)
	}
	return r
}

func release(t testing.TB, b driver.Backend, c driver.Claim) driver.Result {
	t.Helper()
	r, err := b.Release(context.Background(), c)
	if err != nil {
		t.Fatalf("release %q: %v", c.Key, err)
	}
	return r
}

func renew(t testing.TB, b driver.Backend, claims ...driver.Claim) []driver.Result {
	t.Helper()
	r, err := b.Renew(context.Background(), claims)
	if err != nil {
		t.Fatalf("renew: %v", err)
	}
	return r
}

func want(t testing.TB, what string, got driver.Result, state driver.State) {
	t.Helper()
	if got.State != state {
		t.Fatalf("%s: %v, want %v (%+v)", what, got.State, state, got)
	}
}

// tidy checks that a process that opens an unused directory leaves no trace of keys and members.
// Each process cleans up for a second at most, so one may not finish.
func tidy(t testing.TB, dir string) {
	t.Helper()
	var left []string
	defer func() {
		if len(left) > 0 {
			t.Logf("left behind: %q", left)
		}
	}()
	eventually(t, "nothing is left of keys and members", func() bool {
		visit(t, dir)
		keys, err1 := filepath.Glob(filepath.Join(dir, "keys", "*"))
		members, err2 := filepath.Glob(filepath.Join(dir, "members", "*"))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		left = append(keys, members...)
		return len(left) == 0
	})
}

// visit opens and closes dir.
func visit(t testing.TB, dir string) {
	t.Helper()
	b, err := filehold.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTwoBackendsExcludeEachOther(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	first, second := claim("k"), claim("k")
	got := acquire(t, a, first)
	want(t, "first", got, driver.Held)
	busy := acquire(t, b, second)
	want(t, "second", busy, driver.Busy)
	if busy.Holder != first.Owner || busy.ExpiresIn <= 0 || busy.ExpiresIn > ttl {
		t.Errorf("busy result %+v does not name the holder %q", busy, first.Owner)
	}
	want(t, "foreign release", release(t, b, second), driver.Lost)
	want(t, "release", release(t, a, first), driver.Held)
	want(t, "release again", release(t, a, first), driver.Lost)
	after := acquire(t, b, second)
	want(t, "second after release", after, driver.Held)
	if after.Token <= got.Token {
		t.Errorf("token %d after %d", after.Token, got.Token)
	}
	want(t, "release", release(t, b, second), driver.Held)
	a.Close()
	b.Close()
	tidy(t, dir)
}
