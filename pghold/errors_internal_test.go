package pghold

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

// A server that shuts down during a request leaves the outcome of a change open, and none of a
// question.
func TestOutcomeOfAShutdown(t *testing.T) {
	b := &Backend{}
	for effect, want := range map[bool]error{true: driver.ErrUnknown,
		false: driver.ErrUnavailable} {
		if err := b.failure(&pgconn.PgError{Code: "57P01"}, effect); !errors.Is(err, want) {
			t.Errorf("effect %v: %v; want %v", effect, err, want)
		}
	}
}
