package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// A wait for nodes that are late ends, even if its timer fires a little before the clock shows that
// the time is over. That happens if the goroutine is stopped between setting the timer and reading
// the clock.
func TestLingerEndsAfterAnEarlyTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const early = time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := &round{q: new(Quorum), bound: 50 * time.Millisecond, open: 1} // it never returns
		go func() {
			time.Sleep(early)
			clock.SimulateSuspend(-early)
		}()
		r.linger(ctx, false)
		clock.SimulateSuspend(early)
		if ctx.Err() != nil {
			t.Error("a wait for late nodes went on until its caller's context ended")
		}
	})
}
