package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// maxCampaignPause bounds the pause after campaigns that failed: as soon as the backend answers
// again, somebody should lead.
const maxCampaignPause = 5 * time.Second

// pauses double from the smallest to the largest.
type pauses struct{ min, max, next time.Duration }

// take returns the next pause, or some time between half of it and all of it: candidates that
// failed together do not come back together.
func (p *pauses) take() time.Duration {
	pause := min(max(p.next, p.min), p.max)
	p.next = p.max
	if pause <= p.max/2 {
		p.next = 2 * pause
	}
	return pause/2 + rand.N(pause-pause/2+1)
}

// reset has the next pause be the smallest.
func (p *pauses) reset() { p.next = p.min }

// afterTerm returns the pause after a term that lasted so long, and why it ended. Who gave up for a
// preferred candidate has not failed, and should be there if that one does.
func (p *pauses) afterTerm(lasted time.Duration, cause error) time.Duration {
	if errors.Is(cause, ErrPreferred) {
		smallest := pauses{min: p.min, max: p.max}
		return smallest.take()
	}
	if lasted > p.max {
		p.reset()
	}
	return p.take()
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timed, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-timed.Done()
}
