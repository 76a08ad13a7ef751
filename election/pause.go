package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// maxCampaignPause bounds the pause after campaigns that failed, so that somebody leads soon when
// the backend answers again.
const maxCampaignPause = 5 * time.Second

// pauses double from the smallest to the largest.
type pauses struct{ min, max, next time.Duration }

// take returns a random time between half of the next pause and all of it, so that candidates that
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

// afterTerm returns the pause after a term that lasted so long and ended with that cause. A
// candidate that gave up for a preferred one has not failed, and should be there if the preferred
// one fails.
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
