package holdfast

import "sync/atomic"

// Stats is a snapshot of a Locker's counters. All but Held and Waiting count since New.
type Stats struct {
	Held    int // locks that are held now, without nested ones
	Waiting int // calls that wait for a key now, without those that are just asking the backend

	Acquired       uint64 // acquisitions that succeeded, including those in memory
	Refused        uint64 // calls that failed, for one key or several, for whatever reason
	HandedOver     uint64 // local handoffs
	Released       uint64 // locks released by their holders
	Lost           uint64 // locks lost, see Hooks.Lost
	Renewed        uint64 // renewals that succeeded
	RenewalsMissed uint64 // renewals that failed while the lock was still held
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
