package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// mute is a backend that shows nothing of what it knows.
type mute struct{ driver.Backend }

// TestLsOfAMuteBackend: a backend that cannot show its locks is an error that says so.
func TestLsOfAMuteBackend(t *testing.T) {
	b := memhold.New()
	claim := driver.Claim{Key: "pre/nightly", Owner: driver.NewOwner(driver.OwnerSuffix("x")),
		TTL: time.Hour}
	if r, err := b.Acquire(t.Context(), claim); err != nil || r.State != driver.Held {
		t.Fatal(r.State, err)
	}
	var out, stderr bytes.Buffer
	open := func(context.Context) (driver.Backend, error) { return b.Client(), nil }
	if err := cli.ListOn(&out, &stderr, open); err != nil ||
		!strings.Contains(out.String(), "\nnightly ") {
		t.Errorf("of a backend that shows them: %v, %q", err, out.String())
	}
	open = func(context.Context) (driver.Backend, error) { return mute{b}, nil }
	err := cli.ListOn(&out, &stderr, open)
	if err == nil || !strings.Contains(err.Error(), "test:: this backend cannot show") {
		t.Errorf("of one that does not: %v", err)
	}
}

// counting is a backend that counts releases.
type counting struct {
	*memhold.Backend
	releases int
}

func (c *counting) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	c.releases++
	return c.Backend.Release(ctx, claim)
}

// Close leaves it open, for another command.
func (c *counting) Close() error { return nil }

// TestReleaseSendsNothingForOthers: the backend would also take a waiter out of its queue, so it is
// not asked to unless the acquisition holds the lock.
func TestReleaseSendsNothingForOthers(t *testing.T) {
	b := &counting{Backend: memhold.New()}
	claims := make([]driver.Claim, 2)
	for i := range claims {
		claims[i] = driver.Claim{Key: "pre/n", Owner: driver.NewOwner(driver.OwnerSuffix("x")),
			TTL: time.Hour, Queue: true}
		if _, err := b.Acquire(t.Context(), claims[i]); err != nil {
			t.Fatal(err)
		}
	}
	open := func(context.Context) (driver.Backend, error) {
		return b, nil
	}
	for _, owner := range []string{claims[1].Owner, "x"} {
		var stderr bytes.Buffer
		if err := cli.ReleaseOn(&stderr, open, "n", owner); err == nil ||
			!strings.Contains(err.Error(), "nothing was freed") || b.releases != 0 {
			t.Errorf("%q: %v, after %d releases; want none", owner, err, b.releases)
		}
	}
	var stderr bytes.Buffer
	if err := cli.ReleaseOn(&stderr, open, "n", claims[0].Owner); err != nil || b.releases != 1 {
		t.Errorf("of the holder: %v, after %d releases", err, b.releases)
	}
}

// crossed is a backend with two locks, whose holders wait for each other. It hangs at each of the
// first looks, and has forgotten the waiters when it goes on; so has what it says then of one lock.
type crossed struct {
	*memhold.Backend
	hangs  []time.Duration
	looked int
	broken error // in place of the last lock
}

func (c *crossed) hang() (forgot bool) {
	c.looked++
	if c.looked > len(c.hangs) {
		return false
	}
	time.Sleep(c.hangs[c.looked-1])
	return c.hangs[c.looked-1] > 2*time.Second
}

func (c *crossed) List(context.Context, string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		for _, key := range []string{"pre/a", "pre/b"} {
			if err := c.broken; err != nil && key == "pre/b" {
				yield(driver.Entry{}, err)
				return
			}
			if !yield(driver.Entry{Key: key}, nil) {
				return
			}
		}
	}
}

func (c *crossed) Inspect(_ context.Context, key string) (driver.Entry, error) {
	party := func(pid int) driver.Party {
		return driver.Party{Owner: fmt.Sprintf("%024d/far/%d/%s", pid, pid, "x"), Endless: true}
	}
	e := driver.Entry{Key: key, Holder: party(1), Waiters: []driver.Party{party(2)}}
	if key == "pre/b" {
		e = driver.Entry{Key: key, Holder: party(2), Waiters: []driver.Party{party(1)}}
	}
	if key == "pre/a" && c.hang() {
		e.Waiters = nil
	}
	return e, nil
}

// TestDeadlocksOfAServerThatHung: a server that hung has forgotten who waits. Nothing found there
// is no answer: deadlocks looks again, until the server has answered in time, or nobody knows.
func TestDeadlocksOfAServerThatHung(t *testing.T) {
	const long, short = 5 * time.Second, time.Second
	for what, test := range map[string]struct {
		hangs []time.Duration
		code  int
	}{
		"never":               {nil, 1},
		"a little":            {[]time.Duration{short, short}, 1},
		"at the look":         {[]time.Duration{long}, 1},
		"at the second, too":  {[]time.Duration{long, long}, 1},
		"when it looks again": {[]time.Duration{0, long}, 1},
		"always":              {[]time.Duration{long, long, long, long, long, long}, 69},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &crossed{Backend: memhold.New(), hangs: test.hangs}
			var out bytes.Buffer
			code, err := cli.DeadlocksOn(&out, func(context.Context) (driver.Backend, error) {
				return b, nil
			})
			if code != test.code || strings.Contains(out.String(), "deadlock of 2") != (code == 1) {
				t.Errorf("%s: code %d, %v; want %d\n%s", what, code, err, test.code, out.String())
			}
		})
	}
}

// TestPartlySaid: a list that an error ends is said to be a part, by each command that lists. What
// came before the error is shown, except of deadlocks, which may be missing a process.
func TestPartlySaid(t *testing.T) {
	b := &crossed{Backend: memhold.New(), broken: errors.New("broken off")}
	open := func(context.Context) (driver.Backend, error) { return b, nil }
	for command, test := range map[string]struct {
		run         func(out *bytes.Buffer) error
		says, shows string
	}{
		"ls": {func(out *bytes.Buffer) error { return cli.ListOn(out, out, open) },
			"the list is not complete: broken off", "\na "},
		"leaks": {func(out *bytes.Buffer) error { return cli.LeaksOn(out, open) },
			"not all locks were looked at: broken off", "a: no-expiry"},
		"deadlocks": {func(out *bytes.Buffer) error {
			_, err := cli.DeadlocksOn(out, open)
			return err
		}, "not all locks were looked at: broken off", ""},
	} {
		var out bytes.Buffer
		err := test.run(&out)
		if err == nil || !strings.Contains(err.Error(), test.says) ||
			!strings.Contains(out.String(), test.shows) || test.shows == "" && out.Len() > 0 {
			t.Errorf("%s: %v; prints %s", command, err, out.String())
		}
	}
}
