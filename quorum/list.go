package quorum

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

const (
	// votesTogether is about how many keys of one node the others are asked in one call, and
	// batchesTogether how many such calls are under way. With as many more that wait for the next
	// call, a list has so many keys of a node in memory.
	votesTogether   = 64
	batchesTogether = 2

	// listMoment is how long a node has for an answer about many keys when a majority has answered,
	// and listPause how long it may list nothing when a majority is done, if keys were left to it.
	// That is longer than its questions to others may take, as there may be many keys of other
	// programs between two locks.
	listMoment = time.Second
	listPause  = 2 * listSilence

	// listSilence is how long the node to which most keys belong may give no sign of life before
	// the others list them.
	listSilence = 3 * listMoment

	// listLate is for how long a node that was late is not waited for, if the others agree. It is
	// long beside listMoment, so that a node that hangs costs a list little of its time.
	listLate = 20 * listMoment
)

// List yields the keys that a majority of the nodes knows, as driver.Inspector describes, in no
// order. A key has a Holder if one owner value holds it alone on a majority of nodes, and Sharers
// are those that hold it on a majority otherwise: also one of whose Downgrade some nodes have not
// heard. Keys on fewer nodes are being acquired or given back, or a client that died left them
// behind.
//
// The nodes list their keys side by side, and the others are asked about them, many at a time, so
// that memory does not grow with the number of keys. A key that comes to a node or goes from it
// meanwhile may be left out or come twice, and so may one of a node that gives no sign of life for
// seconds.
//
// It calls [driver.Answered] each time a majority of the nodes has answered. It yields an *Error if
// no majority answers; see [Quorum.Inspect].
func (q *Quorum) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		if err := q.ready(ctx); err != nil {
			yield(driver.Entry{}, err)
			return
		}
		l := &list{q: q, prefix: prefix, lost: make([]bool, len(q.nodes)),
			late: newLateness(len(q.nodes), listLate), signs: make([]signs, len(q.nodes)),
			heard: make([]bool, len(q.nodes)), done: make([]bool, len(q.nodes)),
			ends: make([]reply[struct{}], len(q.nodes))}
		l.run(ctx, yield)
	}
}

// list is one iteration of List. Each key belongs to the first of the nodes that know it: only when
// that node lists it, it is yielded. So nobody has to remember which keys were.
type list struct {
	q      *Quorum
	prefix string
	late   *lateness
	signs  []signs
	ends   []reply[struct{}] // how the lists of the nodes ended

	mu    sync.Mutex
	heard []bool // which nodes have answered since a majority last had
	done  []bool // which nodes have listed all

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
			l.ended(i, false)
			l.q.group.Go(func() { l.node(ctx, n, i, all) })
		}
	}
	moment := time.NewTimer(listPause)
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
			return max(l.q.config.timeout, listPause)
		}
	}
	return max(l.q.config.timeout, DefaultNodeTimeout)
}

// node has one node list its keys, and asks the others about them, many at a time.
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
	var failure error // is set when keys is closed
	keys := make(chan driver.Entry, votesTogether)
	l.q.group.Go(func() {
		defer close(keys)
		for e, err := range in.List(driver.OnAnswer(ctx, func() { l.hear(ctx, i) }), l.prefix) {
			if failure = err; err != nil {
				return
			}
			l.hear(ctx, i)
			select {
			case keys <- e:
			case <-ctx.Done():
				return
			}
		}
	})
	var votes sync.WaitGroup
	room := make(chan struct{}, batchesTogether)
	for batch := l.batch(ctx, keys); len(batch) > 0; batch = l.batch(ctx, keys) {
		room <- struct{}{}
		votes.Go(func() {
			l.vote(ctx, i, batch, tell)
			<-room
		})
	}
	votes.Wait()
	if ctx.Err() == nil { // else keys may still be open
		l.ended(i, failure == nil)
		tell(listed{node: i, end: true, err: failure})
	}
}

// hear notes that a node has answered, and tells the caller if a majority has: one that answers
// must not hide that the others hang.
func (l *list) hear(ctx context.Context, i int) {
	l.signs[i].count.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard[i] = true
	good := 0
	for k := range l.heard {
		if l.heard[k] || l.done[k] {
			good++
		}
	}
	if good >= l.q.need {
		clear(l.heard)
		driver.Answered(ctx)
	}
}

// ended notes whether a node has listed all.
func (l *list) ended(i int, well bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[i] = well
}

// batch waits for a key and returns it with those that are there already. It returns none at the
// end of the list or of ctx.
func (l *list) batch(ctx context.Context, keys <-chan driver.Entry) (batch []driver.Entry) {
	select {
	case e, more := <-keys:
		if !more {
			return nil
		}
		batch = append(batch, e)
	case <-ctx.Done():
		return nil
	}
	for len(batch) < votesTogether {
		select {
		case e, more := <-keys:
			if !more {
				return batch
			}
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}

// vote asks the other nodes about keys that one of them has listed.
func (l *list) vote(ctx context.Context, from int, batch []driver.Entry, tell func(listed)) {
	batch = l.front(ctx, from, batch, tell)
	if len(batch) == 0 {
		return
	}
	listed := make([]driver.Inspected, len(batch))
	for k, e := range batch {
		listed[k].Entry = e
	}
	replies := l.q.askAll(ctx, keysOf(batch), inquiry[[]driver.Inspected]{but: from, given: listed,
		late: l.late, moment: listMoment})
	for k, e := range batch {
		tell(l.count(from, e.Key, aboutKey(replies, k)))
	}
}

// count says what becomes of a key, by what the nodes know of it.
func (l *list) count(from int, key string, replies []reply[driver.Entry]) listed {
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
		k.entry, k.yielded = l.q.merge(key, entries), true
		k.entry.Waiters = nil
	}
	return k
}

// front asks the node to which most keys belong, if it is not the one that has listed these. About
// those that it knows nobody else has to be asked. It returns the others.
func (l *list) front(ctx context.Context, from int, batch []driver.Entry,
	tell func(listed)) (others []driver.Entry) {
	i := slices.Index(l.lost, false)
	if i == from {
		return batch
	}
	answers, err := l.askFront(ctx, i, keysOf(batch))
	if err != nil {
		return batch
	}
	for k, e := range batch {
		if a := answers[k]; a.Err == nil && !unknown(a.Entry) {
			tell(listed{node: from, left: i})
		} else {
			others = append(others, e)
		}
	}
	return others
}

// askFront asks the node to which most keys belong. It waits as long as the node shows a sign of
// life: that node lists its keys too, so each that is not left to it is listed twice.
func (l *list) askFront(ctx context.Context, i int, keys []string) ([]driver.Inspected, error) {
	for signs := &l.signs[i]; ; {
		before := signs.count.Load()
		if signs.silentAt.Load() == before+1 {
			return nil, &driver.Error{Err: node.ErrNoReply}
		}
		bounded, cancel := context.WithTimeout(ctx, max(l.q.config.timeout, listSilence))
		answers, err := inspectAll(keys)(bounded, l.q.nodes[i])
		late := bounded.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			l.hear(ctx, i)
			return answers, nil
		case !late:
			return nil, err
		case signs.count.Load() == before:
			signs.silentAt.Store(before + 1)
			l.late.note(i, clock.Now())
			return nil, err
		}
	}
}

// signs are the signs of life of a node: its answers.
type signs struct {
	count    atomic.Int64
	silentAt atomic.Int64 // after so many signs it gave none in time, and 1 more; 0: it always did
}

func keysOf(batch []driver.Entry) []string {
	keys := make([]string, len(batch))
	for k, e := range batch {
		keys[k] = e.Key
	}
	return keys
}

// first returns the first node that is not lost. There is one.
func first(nodes []int, lost []bool) int {
	return nodes[slices.IndexFunc(nodes, func(i int) bool { return !lost[i] })]
}
