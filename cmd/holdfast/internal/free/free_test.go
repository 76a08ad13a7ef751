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
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold/protocol"
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

// set is a backend of several servers that answer a release so.
type set struct {
	*memhold.Backend
	nodes []quorum.NodeError
}

func (s *set) Release(context.Context, driver.Claim) (driver.Result, error) {
	return driver.Result{}, &driver.Error{Maybe: true, Err: &quorum.Error{Need: 2, Nodes: s.nodes}}
}

// TestFreeOfWhatChanged: if the key has become another type, nothing was freed, but only if that
// is so on each server of a set.
func TestFreeOfWhatChanged(t *testing.T) {
	refused := func(maybe bool) quorum.NodeError {
		return quorum.NodeError{Err: &driver.Error{Maybe: maybe, Permanent: true,
			Err: protocol.ServerError("WRONGTYPE the key is a list, and no lock")}}
	}
	for what, test := range map[string]struct {
		last    quorum.NodeError
		nothing bool
	}{
		"all":             {refused(false), true},
		"another's":       {quorum.NodeError{State: driver.Lost}, true},
		"freed there":     {quorum.NodeError{State: driver.Held}, false},
		"it may be freed": {refused(true), false},
		"without an answer": {quorum.NodeError{Err: &driver.Error{Maybe: true,
			Err: errors.New("EOF")}}, false},
	} {
		b := &set{memhold.New(), []quorum.NodeError{refused(false), refused(false), test.last}}
		l := free.Lock{View: &look.View{Backend: b, Patience: time.Minute}, Backend: b, Name: "k"}
		_, _, err := l.Free(t.Context(), look.Key{Full: "k"}, look.Party{})
		if maybe := (*free.MaybeError)(nil); errors.As(err, &maybe) == test.nothing {
			t.Errorf("%s: %v", what, err)
		}
		if other := (*free.OtherTypeError)(nil); errors.As(err, &other) != test.nothing {
			t.Errorf("%s: %v", what, err)
		}
		b.Backend.Close()
	}
}
