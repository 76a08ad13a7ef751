package otelhold

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
)

// observer is what the hooks of one Locker know.
type observer struct {
	*Telemetry
	ttl    time.Duration
	queued *queuedLeases
	said   *answers
	holds  *holds
}

// Hooks returns hooks that count and trace, for holdfast.WithHooks. ttl is the TTL of the Locker
// that they are for (holdfast.WithTTL): the margin of renewals is a share of it. 0 means
// holdfast.DefaultTTL, and so do negative ones. If acquisitions have TTLs of their own, their
// margins come out as shares of ttl. Call Hooks once for each Locker.
func (t *Telemetry) Hooks(ttl time.Duration) holdfast.Hooks {
	if ttl <= 0 {
		ttl = holdfast.DefaultTTL
	}
	return (&observer{t, ttl, newQueuedLeases(), newAnswers(), newHolds()}).hooks()
}

func (o *observer) hooks() holdfast.Hooks {
	return holdfast.Hooks{Acquired: o.acquired, Refused: o.refused, Waiting: o.waits,
		Renewed: o.renewed, Lost: o.lost, HandedOver: o.handedOver, Released: o.released}
}

func (o *observer) acquired(e holdfast.AcquiredEvent) {
	if !e.Local {
		o.queued.acquired(e.Key, e.Slot)
	}
	s := o.of(e.Key)
	ctx := o.traceGrant(&e, s)
	s.wait.record(ctx, e.Waited.Seconds())
	s.acquisitions[kind(&e)].add(ctx)
}

func (o *observer) refused(e holdfast.RefusedEvent) {
	o.queued.refused(e.Key)
	s, cause := o.of(e.Key), failureCause(e.Err)
	s.failures[cause].add(o.traceFailure(&e, s, cause))
}

func (o *observer) waits(e holdfast.WaitingEvent) {
	o.queued.waits(e.Key)
	o.said.add(&e)
	o.of(e.Key).answers.add(e.Context)
}

func (o *observer) renewed(e holdfast.RenewedEvent) {
	short := o.queued.renewed(e.Key, e.Slot)
	s, ctx := o.of(e.Key), context.Background()
	o.traceRenewal(&e)
	s.renewal.record(ctx, e.Took.Seconds())
	s.renewals[outcome(&e)].add(ctx)
	if e.Err == nil && !short {
		s.margin.record(ctx, float64(e.Margin)/float64(o.ttl))
	}
}

func (o *observer) lost(e holdfast.LostEvent) {
	o.queued.ended(e.Key, e.Slot)
	s, cause := o.of(e.Key), lossCause(e.Err)
	ctx := o.traceLoss(&e, cause)
	s.hold.record(ctx, e.Held.Seconds())
	s.losses[cause].add(ctx)
}

func (o *observer) handedOver(e holdfast.HandedOverEvent) {
	o.of(e.Key).handovers.add(context.Background())
}

func (o *observer) released(e holdfast.ReleasedEvent) {
	if !e.Local {
		o.queued.ended(e.Key, e.Slot)
	}
	if isLoss(e.Err) {
		return // Lost has told, or told what the maximum hold ended
	}
	s, ctx := o.of(e.Key), o.traceRelease(&e)
	s.hold.record(ctx, e.Held.Seconds())
	if e.Err != nil {
		s.unconfirmed.add(ctx)
	}
}
