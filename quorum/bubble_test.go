package quorum_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

var firstBubble sync.Once

// bubble runs f in a bubble, an hour after its beginning.
//
// The lease clock takes what the boot clock, which is real, is ahead of the bubble's as suspended time, and only ever
// counts more of it. So it follows the bubble's time alone once it has been read at the beginning of
// a bubble, and from an hour after the beginning of each.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		firstBubble.Do(func() { clock.Now() })
		time.Sleep(time.Hour)
		f(t)
	})
}
