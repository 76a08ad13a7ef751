package quorum

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// reply is what one node answered to gather.
type reply[T any] struct {
	node  int
	value T
	err   error
}

// gather asks all nodes a question that is about no claim. It returns when all have answered, when
// a majority has and the others had a moment more, or when ctx ends. Replies are by node. A node
// that has not answered has an error.
func gather[T any](ctx context.Context, q *Quorum, ask func(context.Context, *node.Node) (T,
	error)) []reply[T] {
	replies := make([]reply[T], len(q.nodes))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// has room for all: perhaps nobody listens any more
	arrived := make(chan reply[T], len(q.nodes))
	for i, n := range q.nodes {
		replies[i] = reply[T]{node: i, err: &driver.Error{Err: node.ErrNoReply}}
		q.group.Go(func() {
			value, err := ask(ctx, n)
			arrived <- reply[T]{i, value, err}
		})
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
		case <-q.group.Context().Done():
			return replies
		}
	}
	return replies
}
