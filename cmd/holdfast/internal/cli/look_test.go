package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
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
