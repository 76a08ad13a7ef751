package otelhold

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

const (
	// maxWaits is of how many waits answers are kept. One more, and all are forgotten: what is
	// there by then are waits whose end was not told.
	maxWaits = 10_000

	// maxAnswers is how many answers a span tells: the first ones, and the last one.
	maxAnswers = 16
)

// answers are those of the backend to the waits that are under way. They become events of the span
// of the acquisition, which is made when its outcome is known.
type answers struct {
	mu     sync.Mutex
	byWait map[waitID][]answer
}

// waitID is what the events of a wait have in common: the key, and the caller's span. Calls for one
// key within one span are not told apart.
type waitID struct {
	key    string
	caller trace.SpanID
}

func waitOf(key string, caller context.Context) waitID {
	return waitID{key, trace.SpanContextFromContext(caller).SpanID()}
}

type answer struct {
	at        time.Time
	holder    string
	place     int
	expiresIn time.Duration
}

func newAnswers() *answers { return &answers{byWait: make(map[waitID][]answer)} }

// add keeps an answer that says something new.
func (a *answers) add(e *holdfast.WaitingEvent) {
	id := waitOf(e.Key, e.Context)
	next := answer{time.Now(), e.Holder.String(), e.Place, e.ExpiresIn}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.byWait[id]
	if n := len(known); n > 0 {
		if known[n-1].holder == next.holder && known[n-1].place == next.place {
			return
		}
		if n == maxAnswers {
			known[n-1] = next
			return
		}
	} else if len(a.byWait) >= maxWaits {
		clear(a.byWait)
	}
	a.byWait[id] = append(known, next)
}

// tell makes the answers events of the span of the acquisition that has waited.
func (a *answers) tell(span trace.Span, id waitID) {
	a.mu.Lock()
	said := a.byWait[id]
	delete(a.byWait, id)
	a.mu.Unlock()
	for _, s := range said {
		attributes := []attribute.KeyValue{attribute.String("holder", s.holder)}
		if s.place > 0 {
			attributes = append(attributes, attribute.Int("place", s.place))
		}
		if s.expiresIn > 0 {
			attributes = append(attributes, seconds("expires_in", s.expiresIn))
		}
		span.AddEvent(waitingEvent, trace.WithTimestamp(s.at), trace.WithAttributes(attributes...))
	}
}
