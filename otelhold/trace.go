package otelhold

import (
	"context"
	"errors"
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
		return []attribute.KeyValue{s.resource, attribute.String("key", key)}
	}
	return []attribute.KeyValue{s.resource}
}

// words appends the text of an error to attributes, as error. Without keys it is only what the
// backend said, if that is what failed: all other texts may name keys.
func (o *observer) words(attributes []attribute.KeyValue, err error) []attribute.KeyValue {
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
	return append(attributes, attribute.String("error", err.Error()))
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
	ctx, acquire := o.tracer.Start(e.Context, acquireSpan,
		trace.WithTimestamp(e.Granted.Add(-e.Waited)), trace.WithAttributes(attributes...),
		trace.WithAttributes(attribute.Bool("local", e.Local)))
	o.said.tell(acquire, waitOf(e.Key, e.Context))
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

// traceFailure makes the span of an acquisition that failed, and returns a context with it. That a
// TryAcquire finds the key held, and that the caller gives up, are no errors.
func (o *observer) traceFailure(e *holdfast.RefusedEvent, s *series,
	cause string) context.Context {
	now, parent := time.Now(), e.Context
	if parent == nil {
		parent = context.Background()
	}
	attributes := append(o.about(e.Key, s), attribute.String("cause", cause))
	if by, ok := e.Err.(*holdfast.HeldError); ok {
		attributes = append(attributes, attribute.String("holder", by.Holder.String()))
	}
	ctx, span := o.tracer.Start(parent, acquireSpan, trace.WithTimestamp(now.Add(-e.Waited)),
		trace.WithAttributes(o.words(attributes, e.Err)...))
	o.said.tell(span, waitOf(e.Key, parent))
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

// traceRenewal notes on the spans of the locks that rest on the lease that a renewal failed. One
// that ended the lease comes after the loss, and finds no span.
func (o *observer) traceRenewal(e *holdfast.RenewedEvent) {
	if e.Err == nil {
		return
	}
	for _, span := range o.holds.spans(holdID{e.Key, e.Slot, e.Token}) {
		span.AddEvent(missedEvent, trace.WithAttributes(
			o.words([]attribute.KeyValue{seconds("margin", e.Margin)}, e.Err)...))
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
		attribute.String("reason", e.Err.Reason.Error()), seconds("held", e.Held)))
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
		h.span.AddEvent(unconfirmedEvent, at, trace.WithAttributes(o.words(nil, e.Err)...))
	}
	h.span.End(at)
	return trace.ContextWithSpan(context.Background(), h.span)
}
