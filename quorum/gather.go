package quorum

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// reply is what one node answered to gather.
type reply[T any] struct {
	node  int
	value T
	err   error
}

// gather asks all nodes for something that is not about a claim. It returns when all have answered, or when a majority has
// and the others had a moment more, or when ctx ends. Replies are by node; a node without one has an error.
func gather[T any](ctx context.Context, q *Quorum, ask func(context.Context, driver.Backend) (T, error)) []reply[T] {
	replies := make([]reply[T], len(q.nodes))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arrived := make(chan reply[T], len(q.nodes)) // has room for all: nobody may listen any more
	for i, n := range q.nodes {
		replies[i] = reply[T]{node: i, err: &driver.Error{Err: errNoReply}}
		q.flight.add(1)
		go func() {
			value, err := ask(ctx, n.backend)
			arrived <- reply[T]{i, value, err}
			q.flight.end()
		}()
	}
	patience, lose := context.WithCancel(ctx)
	defer lose()
	good := 0
	for range q.nodes {
		select {
		case r := <-arrived:
			replies[r.node] = r
			if r.err != nil {
				continue
			}
			if good++; good == q.need {
				moment := time.AfterFunc(max(q.config.timeout, DefaultNodeTimeout), lose)
				defer moment.Stop()
			}
		case <-patience.Done():
			return replies
		case <-q.base.Done():
			return replies
		}
	}
	return replies
}
