package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// errNotInspected: too few nodes can show what they know.
var errNotInspected = fmt.Errorf("%w: too few nodes implement driver.Inspector",
	errors.ErrUnsupported)

// Inspect describes a key as a majority of the nodes knows it. The token of a holder or sharer is
// the token that most nodes know. If a node that had lost a sharer was set right again, that is one
// that was drawn for the node, and larger than the sharer's own. Its lease lasts until it has no
// majority any more. Waiters are in the order of their mean place.
//
// It fails with an *Error if no majority answers. If too few nodes implement driver.Inspector,
// errors.Is finds errors.ErrUnsupported in the error. It waits for a majority until ctx ends, and
// then a moment more for the others; not
// for one that was late within the last second, if a majority agrees.
func (q *Quorum) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	if err := q.ready(ctx); err != nil {
		return driver.Entry{}, err
	}
	replies := q.ask(ctx, key)
	if err := inspected(ctx, q, replies); err != nil {
		return driver.Entry{}, err
	}
	return q.merge(key, known(replies)), nil
}

// ask asks all nodes for what they know of a key. A node that was late within the last second is
// not waited for if the others agree.
func (q *Quorum) ask(ctx context.Context, key string) []reply[driver.Entry] {
	return gather(ctx, q, inquiry[driver.Entry]{ask: inspect(key), but: nobody, late: q.late,
		enough: q.agree})
}

// known returns what those say that have answered.
func known(replies []reply[driver.Entry]) (entries []driver.Entry) {
	for _, r := range replies {
		if r.err == nil {
			entries = append(entries, r.value)
		}
	}
	return entries
}

// inspect asks a node for what it knows of a key.
func inspect(key string) func(context.Context, *node.Node) (driver.Entry, error) {
	return func(ctx context.Context, n *node.Node) (driver.Entry, error) {
		if in, ok := n.Backend.(driver.Inspector); ok {
			return in.Inspect(ctx, key)
		}
		return driver.Entry{}, errNotInspected
	}
}

// agree reports whether a majority says that the key is free, or that one owner has it.
func (q *Quorum) agree(replies []reply[driver.Entry]) bool {
	votes := make(map[string]int)
	free := 0
	for _, r := range replies {
		if r.err != nil {
			continue
		}
		if unknown(r.value) {
			free++
		}
		for _, p := range append(r.value.Sharers, r.value.Holder) {
			votes[p.Owner]++
		}
	}
	delete(votes, "")
	return free >= q.need || slices.Max(append(slices.Collect(maps.Values(votes)), 0)) >= q.need
}

// unknown reports whether nobody holds the key or waits for it.
func unknown(e driver.Entry) bool {
	return e.Holder == (driver.Party{}) && len(e.Sharers) == 0 && len(e.Waiters) == 0
}

// inspected returns an error unless a majority has answered.
func inspected[T any](ctx context.Context, q *Quorum, replies []reply[T]) error {
	e := &Error{Need: q.need, Nodes: make([]NodeError, len(q.nodes))}
	unable := 0
	for i, r := range replies {
		e.Nodes[i] = NodeError{Node: q.nodes[i].Name, Err: r.err}
		if r.err == nil {
			e.Got++
		}
		if errors.Is(r.err, errNotInspected) {
			unable++
		}
	}
	if e.Got >= q.need {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return node.Refused(err, false)
	}
	if unable > len(q.nodes)-q.need {
		e.cause = errNotInspected
	}
	return node.Refused(e, e.cause != nil)
}

// merge makes one entry of what the nodes know of a key.
func (q *Quorum) merge(key string, entries []driver.Entry) driver.Entry {
	merged := driver.Entry{Key: key}
	alone := make(map[string]int) // on how many nodes
	holders := make(map[string][]driver.Party)
	type place struct{ sum, nodes int }
	places := make(map[string]place)
	waiters := make(map[string]driver.Party)
	for _, e := range entries {
		if e.Holder != (driver.Party{}) {
			alone[e.Holder.Owner]++
			holders[e.Holder.Owner] = append(holders[e.Holder.Owner], e.Holder)
		}
		for _, p := range e.Sharers {
			holders[p.Owner] = append(holders[p.Owner], p)
		}
		for i, w := range e.Waiters {
			p := places[w.Owner]
			places[w.Owner] = place{p.sum + i, p.nodes + 1}
			w.ExpiresIn = max(w.ExpiresIn, waiters[w.Owner].ExpiresIn)
			waiters[w.Owner] = w
		}
	}
	for owner, votes := range holders {
		if len(votes) >= q.need {
			p := driver.Party{Owner: owner, Token: commonToken(votes)}
			p.ExpiresIn, p.Endless = nthRest(votes, q.need)
			p.Count = slices.MaxFunc(votes, func(a, b driver.Party) int {
				return cmp.Compare(a.Count, b.Count)
			}).Count
			p.Cut = slices.ContainsFunc(votes, func(v driver.Party) bool { return v.Cut })
			if alone[owner] >= q.need {
				merged.Holder = p
			} else {
				merged.Sharers = append(merged.Sharers, p)
			}
			delete(waiters, owner)
		}
	}
	if merged.Holder != (driver.Party{}) {
		merged.Sharers = nil // the nodes were not asked at one moment
	}
	slices.SortFunc(merged.Sharers, func(a, b driver.Party) int {
		return cmp.Or(cmp.Compare(a.ExpiresIn, b.ExpiresIn), strings.Compare(a.Owner, b.Owner))
	})
	for _, w := range waiters {
		merged.Waiters = append(merged.Waiters, w)
	}
	slices.SortFunc(merged.Waiters, func(a, b driver.Party) int {
		pa, pb := places[a.Owner], places[b.Owner]
		// By the mean place, and then by owner, so that the order is always the same.
		return cmp.Or(cmp.Compare(pa.sum*pb.nodes, pb.sum*pa.nodes),
			strings.Compare(a.Owner, b.Owner))
	})
	return merged
}

// commonToken returns the token that most nodes know, and of several such the largest.
func commonToken(votes []driver.Party) (token driver.Token) {
	count := make(map[driver.Token]int)
	for _, v := range votes {
		count[v.Token]++
	}
	for t, c := range count {
		if best := count[token]; c > best || c == best && t > token {
			token = t
		}
	}
	return token
}

// nthRest returns how long at least n of the leases last, or that these have no end.
func nthRest(votes []driver.Party, n int) (rest time.Duration, endless bool) {
	rests := make([]time.Duration, len(votes))
	for i, v := range votes {
		rests[i] = v.ExpiresIn
		if v.Endless {
			rests[i] = math.MaxInt64
		}
	}
	slices.Sort(rests)
	if rest = rests[len(rests)-n]; rest == math.MaxInt64 {
		return 0, true
	}
	return rest, false
}
