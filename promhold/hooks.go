package promhold

import (
	"time"

	"github.com/holdfast-go/holdfast"
)

// Hooks returns hooks that count, for holdfast.WithHooks. ttl is the TTL of the Locker that they
// are for (holdfast.WithTTL): the margin of renewals is a share of it. 0 means holdfast.DefaultTTL,
// and so do negative ones. If acquisitions have TTLs of their own, their margins come out as shares
// of ttl. Call Hooks once for each Locker.
func (m *Metrics) Hooks(ttl time.Duration) holdfast.Hooks {
	if ttl <= 0 {
		ttl = holdfast.DefaultTTL
	}
	queued := newQueuedLeases()
	return holdfast.Hooks{
		Acquired: func(e holdfast.AcquiredEvent) {
			if !e.Local {
				queued.acquired(e.Key, e.Slot)
			}
			s := m.of(e.Key)
			s.wait.Observe(e.Waited.Seconds())
			s.acquisitions[kind(&e)].Inc()
		},
		Refused: func(e holdfast.RefusedEvent) {
			queued.refused(e.Key)
			m.of(e.Key).failures[failureCause(e.Err)].Inc()
		},
		Waiting: func(e holdfast.WaitingEvent) {
			queued.waits(e.Key)
			m.of(e.Key).answers.Inc()
		},
		Renewed: func(e holdfast.RenewedEvent) {
			short := queued.renewed(e.Key, e.Slot)
			s := m.of(e.Key)
			s.renewal.Observe(e.Took.Seconds())
			s.renewals[outcome(&e)].Inc()
			if e.Err == nil && !short {
				s.margin.Observe(float64(e.Margin) / float64(ttl))
			}
		},
		Lost: func(e holdfast.LostEvent) {
			queued.ended(e.Key, e.Slot)
			s := m.of(e.Key)
			s.hold.Observe(e.Held.Seconds())
			s.losses[lossCause(e.Err)].Inc()
		},
		HandedOver: func(e holdfast.HandedOverEvent) { m.of(e.Key).handovers.Inc() },
		Released: func(e holdfast.ReleasedEvent) {
			if !e.Local {
				queued.ended(e.Key, e.Slot)
			}
			if isLoss(e.Err) {
				return // Lost has told, or told what the maximum hold ended
			}
			s := m.of(e.Key)
			s.hold.Observe(e.Held.Seconds())
			if e.Err != nil {
				s.unconfirmed.Inc()
			}
		},
	}
}
