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
		l := &list{q: q, prefix: prefix, late: newLateness(len(q.nodes), listLate),
			signs: make([]signs, len(q.nodes)), ends: make([]reply[struct{}], len(q.nodes))}
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
}

func (l *list) run(ctx context.Context, yield func(driver.Entry, error) bool) {
	n := len(l.q.nodes)
	var earlier [][]bool
	for lost := make([]bool, n); ; {
		p := &pass{list: l, lost: lost, earlier: earlier, heard: make([]bool, n),
			done: make([]bool, n)}
		relied, stopped := p.run(ctx, yield)
		if stopped {
			return
		}
		if err := inspected(ctx, l.q, l.ends); err != nil {
			yield(driver.Entry{}, err)
			return
		}
		more := slices.Clone(lost)
		for i := range more {
			more[i] = more[i] || relied[i] && l.ends[i].err != nil
		}
		if slices.Equal(more, lost) {
			return
		}
		earlier, lost = append(earlier, lost), more
	}
}

// pass has all nodes list their keys once. Its goroutines may be at work for a moment when the next
// pass has begun.
type pass struct {
	*list

	// lost are the nodes whose lists have failed in earlier passes, and to which keys belonged. In
	// this one they list nothing, and these keys belong to the next node.
	lost    []bool
	earlier [][]bool // lost, in each pass before

	mu    sync.Mutex
	over  bool   // nobody is told of answers any more
	heard []bool // which nodes have answered since a majority last had
	done  []bool // which nodes have listed all
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

// run returns on which nodes others have relied, and whether the caller has enough.
func (p *pass) run(ctx context.Context, yield func(driver.Entry, error) bool) (relied []bool,
	stopped bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer p.end(cancel)
	relied = make([]bool, len(p.q.nodes))
	all := make(chan listed)
	open, good := 0, 0
	for i, n := range p.q.nodes {
		if !p.lost[i] {
			p.ends[i] = reply[struct{}]{node: i, err: &driver.Error{Err: node.ErrNoReply}}
			open++
			p.q.group.Go(func() { p.node(ctx, n, i, all) })
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
				if p.ends[k.node].err = k.err; k.err == nil {
					good++
				}
			case k.left != nobody:
				relied[k.left] = true
			case k.yielded && !yield(k.entry, nil):
				return nil, true
			}
			if good >= p.q.need {
				moment.Reset(p.patience(relied))
			}
		case <-moment.C:
			return relied, false
		case <-ctx.Done():
			return relied, false
		case <-p.q.group.Context().Done():
			return relied, false
		}
	}
	return relied, false
}

// patience is how long to wait for a sign of the nodes whose lists have not ended.
func (p *pass) patience(relied []bool) time.Duration {
	for i := range relied {
		if relied[i] && p.ends[i].err != nil {
			return max(p.q.config.timeout, listPause)
		}
	}
	return max(p.q.config.timeout, DefaultNodeTimeout)
}

// node has one node list its keys, and asks the others about them, many at a time.
func (p *pass) node(ctx context.Context, n *node.Node, i int, all chan<- listed) {
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
	p.q.group.Go(func() {
		defer close(keys)
		for e, err := range in.List(driver.OnAnswer(ctx, func() { p.hear(ctx, i) }), p.prefix) {
			if failure = err; err != nil {
				return
			}
			p.hear(ctx, i)
			select {
			case keys <- e:
			case <-ctx.Done():
				return
			}
		}
	})
	var votes sync.WaitGroup
	room := make(chan struct{}, batchesTogether)
	for batch := p.batch(ctx, keys); len(batch) > 0; batch = p.batch(ctx, keys) {
		room <- struct{}{}
		votes.Go(func() {
			p.vote(ctx, i, batch, tell)
			<-room
		})
	}
	votes.Wait()
	if ctx.Err() == nil { // else keys may still be open
		p.ended(i, failure == nil)
		tell(listed{node: i, end: true, err: failure})
	}
}

// hear notes that a node has answered, and tells the caller if a majority has: one that answers
// must not hide that the others hang.
func (p *pass) hear(ctx context.Context, i int) {
	p.signs[i].count.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard[i] = true
	good := 0
	for k := range p.heard {
		if p.heard[k] || p.done[k] {
			good++
		}
	}
	if good >= p.q.need && !p.over {
		clear(p.heard)
		driver.Answered(ctx)
	}
}

// end ends the pass.
func (p *pass) end(cancel func()) {
	cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// ended notes whether a node has listed all.
func (p *pass) ended(i int, well bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[i] = well
}

// batch waits for a key and returns it with those that are there already. It returns none at the
// end of the list or of ctx.
func (p *pass) batch(ctx context.Context, keys <-chan driver.Entry) (batch []driver.Entry) {
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
func (p *pass) vote(ctx context.Context, from int, batch []driver.Entry, tell func(listed)) {
	batch = p.front(ctx, from, batch, tell)
	if len(batch) == 0 {
		return
	}
	listed := make([]driver.Inspected, len(batch))
	for k, e := range batch {
		listed[k].Entry = e
	}
	replies := p.q.askAll(ctx, keysOf(batch), inquiry[[]driver.Inspected]{but: from, given: listed,
		late: p.late, moment: listMoment})
	for k, e := range batch {
		tell(p.count(from, e.Key, aboutKey(replies, k)))
	}
}

// count says what becomes of a key, by what the nodes know of it.
func (p *pass) count(from int, key string, replies []reply[driver.Entry]) listed {
	var know []int
	var entries []driver.Entry
	for i, r := range replies {
		if r.err == nil && (i == from || !unknown(r.value)) {
			know, entries = append(know, i), append(entries, r.value)
		}
	}
	k := listed{node: from, left: nobody}
	owner := first(know, p.lost)
	for _, lost := range p.earlier {
		if !p.lost[first(know, lost)] {
			return k // it was there in a pass before
		}
	}
	switch {
	case owner != from:
		k.left = owner
	case len(know) >= p.q.need:
		k.entry, k.yielded = p.q.merge(key, entries), true
		k.entry.Waiters = nil
	}
	return k
}

// front asks the node to which most keys belong, if it is not the one that has listed these. About
// those that it knows nobody else has to be asked. It returns the others.
func (p *pass) front(ctx context.Context, from int, batch []driver.Entry,
	tell func(listed)) (others []driver.Entry) {
	i := slices.Index(p.lost, false)
	if i == from {
		return batch
	}
	answers, err := p.askFront(ctx, i, keysOf(batch))
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
func (p *pass) askFront(ctx context.Context, i int, keys []string) ([]driver.Inspected, error) {
	for signs := &p.signs[i]; ; {
		before := signs.count.Load()
		if signs.silentAt.Load() == before+1 {
			return nil, &driver.Error{Err: node.ErrNoReply}
		}
		bounded, cancel := context.WithTimeout(ctx, max(p.q.config.timeout, listSilence))
		answers, err := inspectAll(keys)(bounded, p.q.nodes[i])
		late := bounded.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			p.hear(ctx, i)
			return answers, nil
		case !late:
			return nil, err
		case signs.count.Load() == before:
			signs.silentAt.Store(before + 1)
			p.late.note(i, clock.Now())
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
