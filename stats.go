package holdfast

import "sync/atomic"

// Stats is a snapshot of a Locker's counters. Those in the past tense count since New.
type Stats struct {
	Held    int // locks held now, nested ones not counted
	Waiting int // calls of Acquire that wait now, without those that are just asking the backend

	Acquired       uint64 // acquisitions that succeeded, local handoffs and sharing included
	Refused        uint64 // calls for one key or several that failed, for whatever reason
	HandedOver     uint64 // local handoffs
	Released       uint64 // locks released by their holders
	Lost           uint64 // locks lost
	Renewed        uint64 // renewals that succeeded
	RenewalsMissed uint64 // renewals without an answer that counts; they are tried again
}

// counters are the live values behind Stats.
type counters struct {
	held, waiting                                                          atomic.Int64
	acquired, refused, handedOver, released, lost, renewed, renewalsMissed atomic.Uint64
}

func (c *counters) snapshot() Stats {
	return Stats{
		Held:           int(c.held.Load()),
		Waiting:        int(c.waiting.Load()),
		Acquired:       c.acquired.Load(),
		Refused:        c.refused.Load(),
		HandedOver:     c.handedOver.Load(),
		Released:       c.released.Load(),
		Lost:           c.lost.Load(),
		Renewed:        c.renewed.Load(),
		RenewalsMissed: c.renewalsMissed.Load(),
	}
}
