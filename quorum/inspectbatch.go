package quorum

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// inspectedTogether is about how many keys a node that is no driver.BatchInspector is asked at the
// same time.
const inspectedTogether = 16

// InspectBatch describes keys as [Quorum.Inspect] does, and asks each node about all of them at a
// time.
func (q *Quorum) InspectBatch(ctx context.Context, keys []string) []driver.Inspected {
	all := make([]driver.Inspected, len(keys))
	if len(keys) == 0 {
		return all
	}
	if err := q.ready(ctx); err != nil {
		for k := range all {
			all[k].Err = err
		}
		return all
	}
	replies := q.askAll(ctx, keys, inquiry[[]driver.Inspected]{but: nobody, late: q.late})
	for k, key := range keys {
		about := aboutKey(replies, k)
		if err := inspected(ctx, q, about); err != nil {
			all[k].Err = err
		} else {
			all[k].Entry = q.merge(key, known(about))
		}
	}
	return all
}

// askAll asks nodes for what they know of keys. A node that was late a short while ago is not
// waited for if the others agree about each key.
func (q *Quorum) askAll(ctx context.Context, keys []string,
	what inquiry[[]driver.Inspected]) []reply[[]driver.Inspected] {
	what.ask = inspectAll(keys)
	what.enough = func(replies []reply[[]driver.Inspected]) bool {
		for k := range keys {
			if !q.agree(aboutKey(replies, k)) {
				return false
			}
		}
		return true
	}
	return gather(ctx, q, what)
}

// aboutKey returns what the nodes say about one of the keys that they were asked for.
func aboutKey(replies []reply[[]driver.Inspected], k int) []reply[driver.Entry] {
	about := make([]reply[driver.Entry], len(replies))
	for i, r := range replies {
		about[i] = reply[driver.Entry]{node: i, err: r.err}
		if r.err == nil {
			about[i].value, about[i].err = r.value[k].Entry, r.value[k].Err
		}
	}
	return about
}

// inspectAll asks a node for what it knows of keys. It fails if the node knows nothing of any.
func inspectAll(keys []string) func(context.Context, *node.Node) ([]driver.Inspected, error) {
	return func(ctx context.Context, n *node.Node) ([]driver.Inspected, error) {
		var all []driver.Inspected
		if in, ok := n.Backend.(driver.BatchInspector); ok {
			all = in.InspectBatch(ctx, keys)
		} else {
			all = oneByOne(ctx, n, keys)
		}
		for _, e := range all {
			if e.Err == nil {
				return all, nil
			}
		}
		return nil, all[0].Err
	}
}

// oneByOne asks a node for each key.
func oneByOne(ctx context.Context, n *node.Node, keys []string) []driver.Inspected {
	all := make([]driver.Inspected, len(keys))
	var questions sync.WaitGroup
	room := make(chan struct{}, inspectedTogether)
	for k, key := range keys {
		room <- struct{}{}
		questions.Go(func() {
			all[k].Entry, all[k].Err = inspect(key)(ctx, n)
			<-room
		})
	}
	questions.Wait()
	return all
}
