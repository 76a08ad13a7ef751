package otelhold

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

// The names of spans.
const (
	acquireSpan = "holdfast.acquire"
	holdSpan    = "holdfast.hold"
)

// The names of their events.
const (
	waitingEvent     = "waiting"
	missedEvent      = "renewal missed"
	lostEvent        = "lost"
	unconfirmedEvent = "release unconfirmed"
)

// about are the attributes that all spans have.
func (o *observer) about(key string, s *series) []attribute.KeyValue {
	if o.keys {
		return []attribute.KeyValue{s.resource, text("key", key)}
	}
	return []attribute.KeyValue{s.resource}
}

// text returns an attribute with other people's text in valid UTF-8. A key may be any bytes, and
// for one text that is not UTF-8 an exporter would drop all that it has gathered.
func text(name, value string) attribute.KeyValue {
	return attribute.String(name, strings.ToValidUTF8(value, "\uFFFD"))
}

// words appends the text of an error about the key to attributes, as error. Without keys, it
// appends only what the backend said if the backend failed, because all other texts may name keys.
func (o *observer) words(attributes []attribute.KeyValue, key string,
	err error) []attribute.KeyValue {
	if !o.keys {
		switch failureCause(err) {
		case unavailable, unknown:
			err = errors.Unwrap(err)
		default:
			err = nil
		}
	}
	if err == nil {
		return attributes
	}
	return append(attributes, text("error", o.discreet(key, err.Error())))
}

// discreet takes the key out of what a backend said, unless spans have keys. Some backends name it.
func (o *observer) discreet(key, said string) string {
	if o.keys {
		return said
	}
	quoted := strconv.Quote(key)
	return strings.NewReplacer(key, "...", quoted[1:len(quoted)-1], "...").Replace(said)
}

// seconds is an attribute in seconds, as the metrics are.
func seconds(key string, d time.Duration) attribute.KeyValue {
	return attribute.Float64(key, d.Seconds())
}

// traceGrant makes the span of an acquisition, and begins that of the lock. It returns a context
// with the former.
func (o *observer) traceGrant(e *holdfast.AcquiredEvent, s *series) context.Context {
	attributes := append(o.about(e.Key, s), attribute.String("kind", kind(e)),
		attribute.Int64("token", int64(e.Token)))
	if e.Slot >= 0 {
		attributes = append(attributes, attribute.Int("slot", e.Slot))
	}
	called := e.Granted.Add(-e.Waited)
	ctx, acquire := o.tracer.Start(e.Context, acquireSpan,
		trace.WithTimestamp(called), trace.WithAttributes(attributes...),
		trace.WithAttributes(attribute.Bool("local", e.Local)))
	o.said.tell(acquire, waitOf(e.Key, e.Context), called)
	acquire.End(trace.WithTimestamp(e.Granted))

	parent := e.Context
	if !trace.SpanContextFromContext(parent).IsValid() {
		parent = ctx // without a caller's span, both are one trace nevertheless
	}
	_, hold := o.tracer.Start(parent, holdSpan, trace.WithTimestamp(e.Granted),
		trace.WithLinks(trace.Link{SpanContext: acquire.SpanContext()}),
		trace.WithAttributes(attributes...))
	if hold.IsRecording() {
		o.holds.add(&openHold{holdID{e.Key, e.Slot, e.Token}, hold, e.Granted})
	}
	return ctx
}

// traceFailure makes the span of an acquisition that failed, and returns a context with it. It is
// no error if a TryAcquire finds the key held, or if the caller gives up.
func (o *observer) traceFailure(e *holdfast.RefusedEvent, s *series,
	cause string) context.Context {
	now, parent := time.Now(), e.Context
	called := now.Add(-e.Waited)
	if parent == nil {
		parent = context.Background()
	}
	attributes := append(o.about(e.Key, s), attribute.String("cause", cause))
	if by, ok := e.Err.(*holdfast.HeldError); ok {
		attributes = append(attributes, text("holder", by.Holder.String()))
	}
	ctx, span := o.tracer.Start(parent, acquireSpan, trace.WithTimestamp(called),
		trace.WithAttributes(o.words(attributes, e.Key, e.Err)...))
	o.said.tell(span, waitOf(e.Key, parent), called)
	if cause != held && cause != cancelled {
		fail(span, cause)
	}
	span.End(trace.WithTimestamp(now))
	return ctx
}

// fail gives a span the status of an error.
func fail(span trace.Span, cause string) {
	span.SetAttributes(attribute.String("error.type", cause))
	span.SetStatus(codes.Error, cause)
}

// traceRenewal notes on the spans of the locks that rest on the lease that a renewal failed. The
// event of a renewal that ended the lease comes after the loss, and finds no span.
func (o *observer) traceRenewal(e *holdfast.RenewedEvent) {
	if e.Err == nil {
		return
	}
	for _, span := range o.holds.spans(holdID{e.Key, e.Slot, e.Token}) {
		span.AddEvent(missedEvent, trace.WithAttributes(
			o.words([]attribute.KeyValue{seconds("margin", e.Margin)}, e.Key, e.Err)...))
	}
}

// traceLoss ends the span of a lock that was lost.
func (o *observer) traceLoss(e *holdfast.LostEvent, cause string) context.Context {
	h := o.holds.take(holdID{e.Key, e.Slot, e.Err.Token}, e.Held)
	if h == nil {
		return context.Background()
	}
	at := trace.WithTimestamp(h.granted.Add(e.Held))
	h.span.AddEvent(lostEvent, at, trace.WithAttributes(attribute.String("cause", cause),
		text("reason", o.discreet(e.Key, e.Err.Reason.Error())), seconds("held", e.Held)))
	fail(h.span, cause)
	h.span.End(at)
	return trace.ContextWithSpan(context.Background(), h.span)
}

// traceRelease ends the span of a lock that was released.
func (o *observer) traceRelease(e *holdfast.ReleasedEvent) context.Context {
	h := o.holds.take(holdID{e.Key, e.Slot, e.Token}, e.Held)
	if h == nil {
		return context.Background()
	}
	at := trace.WithTimestamp(h.granted.Add(e.Held))
	if e.Err != nil {
		h.span.AddEvent(unconfirmedEvent, at, trace.WithAttributes(o.words(nil, e.Key, e.Err)...))
	}
	h.span.End(at)
	return trace.ContextWithSpan(context.Background(), h.span)
}
