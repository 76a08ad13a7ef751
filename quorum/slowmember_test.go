package quorum_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// slowMember is a node that is slow to tell its set, and to move.
type slowMember struct {
	*memhold.Backend
	takes time.Duration
}

// Belongs tells the set, late.
func (s slowMember) Belongs(ctx context.Context) (driver.Set, error) {
	if err := s.wait(ctx); err != nil {
		return driver.Set{}, err
	}
	return s.Backend.Belongs(ctx)
}

// Move moves the node, late.
func (s slowMember) Move(ctx context.Context, from, to driver.Set) (driver.Set, error) {
	if err := s.wait(ctx); err != nil {
		return driver.Set{}, err
	}
	return s.Backend.Move(ctx, from, to)
}

func (s slowMember) wait(ctx context.Context) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return &driver.Error{Maybe: true, Err: ctx.Err()}
	}
}

// TestAdoptOfSlowNodes: in each step of Adopt a node has the node timeout, and a second at least.
func TestAdoptOfSlowNodes(t *testing.T) {
	for _, test := range []struct {
		takes   time.Duration
		options []quorum.Option
		done    bool
	}{
		{900 * time.Millisecond, nil, true},
		{900 * time.Millisecond, []quorum.Option{quorum.WithNodeTimeout(time.Millisecond)}, true},
		{3 * time.Second, nil, false},
		{3 * time.Second, []quorum.Option{quorum.WithNodeTimeout(5 * time.Second)}, true},
	} {
		bubble(t, func(t *testing.T) {
			var nodes []driver.Backend
			for range 3 {
				nodes = append(nodes, slowMember{memhold.New(), test.takes})
			}
			q, err := quorum.New(nodes, append(test.options, quorum.WithGuard(0))...)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			err = q.Adopt(t.Context(), 0)
			if test.done && err != nil || !test.done && !errors.Is(err, driver.ErrUnavailable) &&
				!errors.Is(err, driver.ErrUnknown) {
				t.Errorf("nodes take %v: Adopt: %[3]v; want success: %[2]v",
					test.takes, test.done, err)
			}
		})
	}
}
