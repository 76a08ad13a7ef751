package withredisson

import "time"

// SetPatience sets how long a claim counts as waiting after it last asked. Call it before there is
// a claim.
func (b *Backend) SetPatience(d time.Duration) { b.ears.patience = d }
