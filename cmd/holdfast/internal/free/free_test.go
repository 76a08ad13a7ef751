package free_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/free"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// dead is a backend that does not answer a release.
type dead struct {
	*memhold.Backend
	looks int
}

func (d *dead) Release(context.Context, driver.Claim) (driver.Result, error) {
	return driver.Result{}, &driver.Error{Maybe: true, Err: errors.New("EOF")}
}

func (d *dead) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	d.looks++
	return d.Backend.Inspect(ctx, key)
}

// TestFreeWithoutAnAnswer: without an answer it says so at once. To look as well would cost the
// operator the time of a server that hangs once more.
func TestFreeWithoutAnAnswer(t *testing.T) {
	d := &dead{Backend: memhold.New()}
	defer d.Backend.Close()
	l := free.Lock{View: &look.View{Backend: d, Patience: time.Minute}, Backend: d, Name: "k"}
	_, _, err := l.Free(t.Context(), look.Key{Full: "k"}, look.Party{})
	if maybe := (*free.MaybeError)(nil); !errors.As(err, &maybe) || d.looks > 0 {
		t.Errorf("%v after %d looks; want that it may be freed, after none", err, d.looks)
	}
}
