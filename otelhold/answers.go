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
	// maxWaits is for how many waits answers are kept. If there is one more, all are forgotten,
	// because most of them must be waits whose end was not told.
	maxWaits = 10_000

	// maxAnswers is how many answers a span tells: the first ones, and the last one.
	maxAnswers = 16

	// sameWait is how far apart events may put the beginning of one wait. Events tell how long ago
	// it was, and come a moment later.
	sameWait = time.Second
)

// answers are the backend's answers to the waits that are under way. They become events of the
// acquisition's span, which is made when the outcome is known.
type answers struct {
	mu     sync.Mutex
	byWait map[waitID]*wait
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

// wait has the answers to one wait. Perhaps its end is not told: if a set of keys could not be had,
// events name only the key that was missing.
type wait struct {
	began time.Time
	said  []answer
}

// beganBefore reports whether the wait is an earlier one than the one that began at that time.
func (w *wait) beganBefore(began time.Time) bool { return began.Sub(w.began) > sameWait }

type answer struct {
	at        time.Time
	holder    string
	place     int
	expiresIn time.Duration
}

func newAnswers() *answers { return &answers{byWait: make(map[waitID]*wait)} }

// add keeps an answer that says something new.
func (a *answers) add(e *holdfast.WaitingEvent) {
	id := waitOf(e.Key, e.Context)
	next := answer{time.Now(), e.Holder.String(), e.Place, e.ExpiresIn}
	began := next.at.Add(-e.Waited)
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.byWait[id]
	if w == nil || w.beganBefore(began) {
		if w == nil && len(a.byWait) >= maxWaits {
			clear(a.byWait)
		}
		w = &wait{began: began}
		a.byWait[id] = w
	}
	if n := len(w.said); n > 0 {
		if w.said[n-1].holder == next.holder && w.said[n-1].place == next.place {
			return
		}
		if n == maxAnswers {
			w.said[n-1] = next
			return
		}
	}
	w.said = append(w.said, next)
}

// tell makes the answers events of the span of the acquisition that has waited and that was called
// at that time.
func (a *answers) tell(span trace.Span, id waitID, called time.Time) {
	a.mu.Lock()
	w := a.byWait[id]
	delete(a.byWait, id)
	a.mu.Unlock()
	if w == nil || w.beganBefore(called) {
		return
	}
	for _, s := range w.said {
		attributes := []attribute.KeyValue{text("holder", s.holder)}
		if s.place > 0 {
			attributes = append(attributes, attribute.Int("place", s.place))
		}
		if s.expiresIn > 0 {
			attributes = append(attributes, seconds("expires_in", s.expiresIn))
		}
		span.AddEvent(waitingEvent, trace.WithTimestamp(s.at), trace.WithAttributes(attributes...))
	}
}
