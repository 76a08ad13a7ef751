package quorum

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

const (
	// votesTogether is for how many keys of one node the others are asked at the same time, and so
	// how many of its keys a list has in memory.
	votesTogether = 32

	// listMoment is for how long a node may list nothing when a majority is done, if keys were left
	// to it. That is longer than it may take for an answer: between two keys there may be many of
	// other programs.
	listMoment = time.Second
)

// List yields the keys that a majority of the nodes knows, as driver.Inspector describes, in no
// order. A key has a Holder if one owner value holds it alone on a majority of nodes, and Sharers
// are those that hold it on a majority otherwise: also one of whose Downgrade some nodes have not
// heard. Keys on fewer nodes are being acquired or given back, or a client that died left them
// behind.
//
// The nodes list their keys side by side, and for each key the others are asked, so that memory
// does not grow with the number of keys. A key that comes to a node or goes from it meanwhile may
// be left out or come twice.
//
// It yields an *Error if no majority answers; see [Quorum.Inspect].
func (q *Quorum) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		if err := q.ready(ctx); err != nil {
			yield(driver.Entry{}, err)
			return
		}
		l := &list{q: q, prefix: prefix, lost: make([]bool, len(q.nodes)),
			ends: make([]reply[struct{}], len(q.nodes))}
		l.run(ctx, yield)
	}
}

// list is one iteration of List. Each key belongs to the first of the nodes that know it: only when
// that node lists it, it is yielded. So nobody has to remember which keys were.
type list struct {
	q      *Quorum
	prefix string
	ends   []reply[struct{}] // how the lists of the nodes ended

	// lost are the nodes whose lists have failed, and to which keys belonged. Then there is another
	// pass, in which these keys belong to the next node.
	lost    []bool
	earlier [][]bool // lost, in each pass before
}

func (l *list) run(ctx context.Context, yield func(driver.Entry, error) bool) {
	for {
		relied, stopped := l.pass(ctx, yield)
		if stopped {
			return
		}
		if err := inspected(ctx, l.q, l.ends); err != nil {
			yield(driver.Entry{}, err)
			return
		}
		lost := slices.Clone(l.lost)
		for i := range lost {
			lost[i] = lost[i] || relied[i] && l.ends[i].err != nil
		}
		if slices.Equal(lost, l.lost) {
			return
		}
		l.earlier, l.lost = append(l.earlier, l.lost), lost
	}
}

// listed is what has become of a key that a node has listed, or the end of its list.
type listed struct {
	node    int
	entry   driver.Entry
	yielded bool // entry is to be yielded
	left    int  // the node to which the key is left; nobody if there is none
	end     bool
	err     error // of the end
}

// pass has all nodes but those that are lost list their keys. It returns on which nodes others have
// relied, and whether the caller has enough.
func (l *list) pass(ctx context.Context, yield func(driver.Entry, error) bool) (relied []bool,
	stopped bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	relied = make([]bool, len(l.q.nodes))
	all := make(chan listed)
	open, good := 0, 0
	for i, n := range l.q.nodes {
		if !l.lost[i] {
			l.ends[i] = reply[struct{}]{node: i, err: &driver.Error{Err: node.ErrNoReply}}
			open++
			l.q.group.Go(func() { l.node(ctx, n, i, all) })
		}
	}
	moment := time.NewTimer(listMoment)
	moment.Stop()
	for open > 0 {
		select {
		case k := <-all:
			switch {
			case k.end:
				open--
				if l.ends[k.node].err = k.err; k.err == nil {
					good++
				}
			case k.left != nobody:
				relied[k.left] = true
			case k.yielded && !yield(k.entry, nil):
				return nil, true
			}
			if good >= l.q.need {
				moment.Reset(l.patience(relied))
			}
		case <-moment.C:
			return relied, false
		case <-ctx.Done():
			return relied, false
		case <-l.q.group.Context().Done():
			return relied, false
		}
	}
	return relied, false
}

// patience is how long to wait for a sign of the nodes whose lists have not ended.
func (l *list) patience(relied []bool) time.Duration {
	for i := range relied {
		if relied[i] && l.ends[i].err != nil {
			return max(l.q.config.timeout, listMoment)
		}
	}
	return max(l.q.config.timeout, DefaultNodeTimeout)
}

// node has one node list its keys, and asks the others for each.
func (l *list) node(ctx context.Context, n *node.Node, i int, all chan<- listed) {
	tell := func(k listed) {
		select {
		case all <- k:
		case <-ctx.Done():
		}
	}
	in, ok := n.Backend.(driver.Inspector)
	if !ok {
		tell(listed{node: i, end: true, err: errNotInspected})
		return
	}
	var votes sync.WaitGroup
	var failure error
	room := make(chan struct{}, votesTogether)
	for e, err := range in.List(ctx, l.prefix) {
		if failure = err; err != nil {
			break
		}
		room <- struct{}{}
		votes.Go(func() {
			tell(l.vote(ctx, i, e))
			<-room
		})
	}
	votes.Wait()
	tell(listed{node: i, end: true, err: failure})
}

// vote asks the other nodes for a key that one of them has listed.
func (l *list) vote(ctx context.Context, from int, e driver.Entry) listed {
	if i := l.front(ctx, from, e.Key); i != nobody {
		return listed{node: from, left: i}
	}
	replies := l.q.ask(ctx, e.Key, from)
	replies[from] = reply[driver.Entry]{node: from, value: e}
	var know []int
	var entries []driver.Entry
	for i, r := range replies {
		if r.err == nil && (i == from || !unknown(r.value)) {
			know, entries = append(know, i), append(entries, r.value)
		}
	}
	k := listed{node: from, left: nobody}
	owner := first(know, l.lost)
	for _, lost := range l.earlier {
		if !l.lost[first(know, lost)] {
			return k // it was there in a pass before
		}
	}
	switch {
	case owner != from:
		k.left = owner
	case len(know) >= l.q.need:
		k.entry, k.yielded = l.q.merge(e.Key, entries), true
		k.entry.Waiters = nil
	}
	return k
}

// front returns the node to which most keys belong, if it knows the key and is not the one that has
// listed it: then nobody else has to be asked.
func (l *list) front(ctx context.Context, from int, key string) int {
	i := slices.Index(l.lost, false)
	if i == from || l.q.late.is(i, clock.Now()) {
		return nobody
	}
	bounded, cancel := context.WithTimeout(ctx, max(l.q.config.timeout, DefaultNodeTimeout))
	defer cancel()
	e, err := inspect(key)(bounded, l.q.nodes[i])
	switch {
	case err == nil && !unknown(e):
		return i
	case bounded.Err() != nil && ctx.Err() == nil:
		l.q.late.note(i, clock.Now())
	}
	return nobody
}

// first returns the first node that is not lost. There is one.
func first(nodes []int, lost []bool) int {
	return nodes[slices.IndexFunc(nodes, func(i int) bool { return !lost[i] })]
}
