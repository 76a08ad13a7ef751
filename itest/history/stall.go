package history

import (
	"context"
	"time"
)

// Unnoticed is for how long a process may stall, or one of its goroutines may be late, without a
// record of it.
const Unnoticed = 15 * time.Millisecond

// WatchStalls records, until ctx ends, when the process did not run. A lock cannot tell of its loss
// then.
func (l *Log) WatchStalls(ctx context.Context, client string) {
	const tick = 5 * time.Millisecond
	for last := Now(); ctx.Err() == nil; {
		time.Sleep(tick)
		now := Now()
		if now-last > int64(Unnoticed) {
			l.Add(Record{Kind: Stall, Client: client, At: last, Until: now})
		}
		last = now
	}
}
