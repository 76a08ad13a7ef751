package board

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/deadlock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

const (
	mostParties = 100_000 // that a search for deadlocks keeps
	mostCycles  = 20      // that are looked at again
	mostWaits   = 40      // keys in the drawing
	mostAtKey   = 8       // holders of a key in the drawing
	mostQueue   = 2       // waiters of a key whom nobody waits for
	mostChain   = 12      // waiters of a key whom somebody waits for
)

// graph says who waits for which key, and who holds it. It has the keys that say most.
type graph struct {
	Processes []process `json:"processes"`
	Waits     []wait    `json:"waits"`
	Cycles    []cycle   `json:"cycles"`
	Hidden    int       `json:"hidden,omitempty"` // keys that are waited for and left out
	Partly    bool      `json:"partly,omitempty"` // some were not searched for deadlocks
}

// process is a process as owner values tell it from others.
type process struct {
	ID   string `json:"id"`
	Who  string `json:"who,omitempty"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
}

// wait is a key with those who wait for it.
type wait struct {
	Key  string   `json:"key"` // of a row
	Name string   `json:"name"`
	To   []string `json:"to"`             // processes that hold it
	From []string `json:"from"`           // processes that wait
	More int      `json:"more,omitempty"` // further ones that wait
}

// cycle is a possible deadlock.
type cycle struct {
	Text  string `json:"text"` // in lines
	Steps []step `json:"steps"`
}

// step goes from a process to one that has what it waits for.
type step struct {
	From string `json:"from"`
	To   string `json:"to"`
	Key  string `json:"key,omitempty"` // of a row; empty: it waits for the end of the other
	Name string `json:"name,omitempty"`
}

// waiting gathers the keys that somebody waits for.
type waiting struct {
	search  *deadlock.Graph
	parties int
	partly  bool
	keys    []*waited
	chained map[deadlock.Process]bool // those who hold what somebody waits for
	known   map[string]process
}

// waited is a key that somebody waits for.
type waited struct {
	id, name         string
	holders, waiters []look.Party // the first ones
	total            int          // how many wait
	rank             int          // how much it says
}

func newWaiting() *waiting {
	return &waiting{search: deadlock.New(), chained: make(map[deadlock.Process]bool),
		known: make(map[string]process)}
}

// add adds a key.
func (w *waiting) add(k look.Key) {
	if len(k.Waiters) == 0 && k.Kind != look.Gate {
		return
	}
	if w.parties += len(k.Waiters) + len(k.Holders); w.parties > mostParties {
		w.partly = true
		return
	}
	w.search.Add(k)
	if len(k.Waiters) == 0 {
		return
	}
	one := &waited{id: keyID(k.Full), name: cut(k.Name.String()), total: len(k.Waiters),
		holders: k.Holders[:min(len(k.Holders), mostAtKey)], waiters: k.Waiters}
	for _, h := range one.holders {
		w.chained[deadlock.Process{Host: h.Host, PID: h.PID}] = true
	}
	w.keys = append(w.keys, one)
}

// graph finds the deadlocks that last for a second look, and chooses what is drawn.
func (w *waiting) graph(ctx context.Context, v *look.View,
	parents deadlock.Parents) (graph, error) {
	g := graph{Partly: w.partly, Waits: []wait{}, Cycles: []cycle{}, Processes: []process{}}
	w.search.Link(parents)
	red := make(map[string]bool)
	cycles := w.search.Cycles()
	for _, c := range cycles[:min(len(cycles), mostCycles)] {
		still, err := c.Still(ctx, v.Peek)
		if err != nil {
			return g, err
		}
		if still {
			g.Cycles = append(g.Cycles, w.cycle(c, red))
		}
	}
	for _, k := range w.keys {
		w.weigh(k, red)
	}
	slices.SortFunc(w.keys, func(a, b *waited) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(b.total, a.total),
			cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
	})
	shown := w.keys[:min(len(w.keys), mostWaits)]
	g.Hidden = len(w.keys) - len(shown)
	for _, k := range shown {
		g.Waits = append(g.Waits, w.wait(k))
	}
	for _, p := range w.known {
		g.Processes = append(g.Processes, p)
	}
	slices.SortFunc(g.Processes, func(a, b process) int { return cmp.Compare(a.ID, b.ID) })
	return g, nil
}

// weigh says how much a key says: most if it is in a deadlock, then if it is in a chain.
func (w *waiting) weigh(k *waited, red map[string]bool) {
	if red[k.id] {
		k.rank = 2
		return
	}
	if slices.ContainsFunc(k.waiters, w.isChained) {
		k.rank = 1
	}
}

func (w *waiting) isChained(p look.Party) bool {
	return !p.Foreign() && w.chained[deadlock.Process{Host: p.Host, PID: p.PID}]
}

// wait describes a key with the waiters that others wait for, and a few more waiters.
func (w *waiting) wait(k *waited) wait {
	one := wait{Key: k.id, Name: k.name, To: []string{}, From: []string{}}
	for _, h := range k.holders {
		one.To = append(one.To, w.process(h))
	}
	chain, queue := 0, 0
	for _, p := range k.waiters {
		count, most := &queue, mostQueue
		if w.isChained(p) {
			count, most = &chain, mostChain
		}
		if *count++; *count <= most {
			one.From = append(one.From, w.process(p))
		} else {
			one.More++
		}
	}
	return one
}

// process notes a process, and returns its ID.
func (w *waiting) process(p look.Party) string {
	if p.Foreign() {
		id := "owner " + ownerID(p.Value)
		w.known[id] = process{ID: id, Who: p.String()}
		return id
	}
	id := fmt.Sprintf("%s %d", look.Shown(p.Host), p.PID)
	one := process{ID: id, Host: cut(look.Shown(p.Host)), PID: p.PID}
	if p.Label != "" {
		one.Who = cut(look.Shown(p.Label))
	}
	if was, ok := w.known[id]; !ok || was.Who == "" {
		w.known[id] = one
	}
	return id
}

// cycle describes a deadlock, and notes its keys.
func (w *waiting) cycle(c deadlock.Cycle, red map[string]bool) cycle {
	ids := make([]string, len(c))
	for i, s := range c {
		p := s.Holds.Party
		if p.Value == "" {
			p = s.Waits.Party
		}
		p.Host, p.PID = s.Host, s.PID
		ids[i] = w.process(p)
	}
	one := cycle{Text: c.Text()}
	for i, s := range c {
		to := step{From: ids[i], To: ids[(i+1)%len(c)]}
		if s.Waits.Full != "" {
			to.Key, to.Name = keyID(s.Waits.Full), cut(s.Waits.Name.String())
			red[to.Key] = true
		}
		one.Steps = append(one.Steps, to)
	}
	return one
}
