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
