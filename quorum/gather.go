package quorum

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// reply is what one node answered to gather.
type reply[T any] struct {
	node  int
	value T
	err   error
}

// inquiry is what gather asks nodes.
type inquiry[T any] struct {
	ask func(context.Context, *node.Node) (T, error)

	// but is a node that is not asked, as it has answered with given; nobody if there is none.
	but   int
	given T

	// With late and enough, a caller that asks about many keys does not wait that moment again for
	// a node that was late a short while ago, if what the others say is enough. Both may be nil.
	late   *lateness
	enough func([]reply[T]) bool

	// moment is how long the others have when a majority has answered; 0 means the node timeout.
	moment time.Duration
}

// nobody is no node.
const nobody = -1

// everybody is the question to all nodes, each of which has its moment.
func everybody[T any](ask func(context.Context, *node.Node) (T, error)) inquiry[T] {
	return inquiry[T]{ask: ask, but: nobody}
}

// lateness has, for each node, until when it is given no moment.
type lateness struct {
	until []atomic.Int64
	span  time.Duration // how long a node that was late is given none
}

// lateFor is the span for single questions.
const lateFor = time.Second

func newLateness(nodes int, span time.Duration) *lateness {
	return &lateness{make([]atomic.Int64, nodes), span}
}

func (l *lateness) is(node int, now clock.Instant) bool {
	if l == nil {
		return false
	}
	until := l.until[node].Load()
	return until != 0 && now < clock.Instant(until)
}

func (l *lateness) note(node int, now clock.Instant) {
	if l != nil {
		l.until[node].Store(int64(now.Add(l.span)))
	}
}

// gather asks nodes a question that is about no claim. It returns when all have answered, when a
// majority has and the others had a moment more, or when ctx ends. Replies are by node. A node that
// has not answered has an error.
func gather[T any](ctx context.Context, q *Quorum, what inquiry[T]) []reply[T] {
	replies := make([]reply[T], len(q.nodes))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// has room for all replies, because nobody may read the last ones
	arrived := make(chan reply[T], len(q.nodes))
	o := outstanding{awaited: make(map[int]bool), spared: make(map[int]bool)}
	for i, n := range q.nodes {
		replies[i] = reply[T]{node: i, err: &driver.Error{Err: node.ErrNoReply}}
		if i == what.but {
			replies[i] = reply[T]{node: i, value: what.given}
			o.good++
			continue
		}
		o.add(i, what.late)
		q.group.Go(func() {
			value, err := what.ask(ctx, n)
			arrived <- reply[T]{i, value, err}
		})
	}
	patience, lose := context.WithCancel(ctx)
	defer lose()
	for given := false; !o.over(func() bool { return o.good >= q.need && what.enough(replies) }); {
		if o.good >= q.need && !given {
			given = true
			moment := time.AfterFunc(max(q.config.timeout, DefaultNodeTimeout, what.moment), lose)
			defer moment.Stop()
		}
		select {
		case r := <-arrived:
			replies[r.node] = r
			o.remove(r.node, r.err == nil)
		case <-patience.Done():
			if ctx.Err() == nil {
				o.note(what.late)
			}
			return replies
		case <-q.group.Context().Done():
			return replies
		}
	}
	return replies
}

// outstanding are the nodes that have not answered yet.
type outstanding struct {
	awaited map[int]bool
	spared  map[int]bool // asked, but not waited for once a majority has said enough
	good    int          // how many have answered
}

func (o *outstanding) add(node int, late *lateness) {
	if late.is(node, clock.Now()) {
		o.spared[node] = true
	} else {
		o.awaited[node] = true
	}
}

func (o *outstanding) remove(node int, good bool) {
	delete(o.awaited, node)
	delete(o.spared, node)
	if good {
		o.good++
	}
}

// over reports whether there is nothing more to wait for.
func (o *outstanding) over(enough func() bool) bool {
	return len(o.awaited) == 0 && (len(o.spared) == 0 || enough())
}

// note notes those who were late.
func (o *outstanding) note(late *lateness) {
	for node := range o.awaited {
		late.note(node, clock.Now())
	}
}
