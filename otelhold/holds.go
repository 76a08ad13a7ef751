package otelhold

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

// maxHolds bounds holds. A hold whose end the hooks were not told of, because they were too slow,
// would stay for ever. The oldest holds are forgotten and get no span, because no span is better
// than one that lies.
const maxHolds = 10_000

// holdID is what the events of a lock have in common. Readers that share a lease have one token.
type holdID struct {
	key   string
	slot  int
	token holdfast.Token
}

// openHold is the span of a lock that is held.
type openHold struct {
	id      holdID
	span    trace.Span
	granted time.Time
}

// holds are the spans of what a Locker holds.
type holds struct {
	mu   sync.Mutex
	byID map[holdID][]*list.Element
	all  list.List // of *openHold, the oldest first
}

func newHolds() *holds { return &holds{byID: make(map[holdID][]*list.Element)} }

func (h *holds) add(hold *openHold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all.Len() >= maxHolds {
		h.remove(h.all.Front())
	}
	h.byID[hold.id] = append(h.byID[hold.id], h.all.PushBack(hold))
}

// remove forgets a hold. The caller holds mu.
func (h *holds) remove(e *list.Element) *openHold {
	hold := h.all.Remove(e).(*openHold)
	rest := slices.DeleteFunc(h.byID[hold.id], func(other *list.Element) bool { return other == e })
	if len(rest) == 0 {
		delete(h.byID, hold.id)
	} else {
		h.byID[hold.id] = rest
	}
	return hold
}

// take removes and returns the hold that has just ended after lasting for held, or returns nil. Of
// several readers it takes the one that was granted at about the right time.
func (h *holds) take(id holdID, held time.Duration) *openHold {
	granted := time.Now().Add(-held)
	h.mu.Lock()
	defer h.mu.Unlock()
	var nearest *list.Element
	var distance time.Duration
	for _, e := range h.byID[id] {
		d := e.Value.(*openHold).granted.Sub(granted).Abs()
		if nearest == nil || d < distance {
			nearest, distance = e, d
		}
	}
	if nearest == nil {
		return nil
	}
	return h.remove(nearest)
}

// spans returns those of all locks with the ID.
func (h *holds) spans(id holdID) (spans []trace.Span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.byID[id] {
		spans = append(spans, e.Value.(*openHold).span)
	}
	return spans
}
