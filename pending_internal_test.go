package holdfast

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// An Acquire that waits behind a single attempt of unknown outcome asks itself, even if the backend
// has been silent for a TTL by then. In every other case the two end together.
//
// Fails if the code is broken like this: missed without leavesOpen.
func TestMissedBehindASingleAttempt(t *testing.T) {
	const ttl = time.Second
	unknown := &driver.Error{Maybe: true, Err: errors.New("connection cut")}
	refused := &driver.Error{Err: errors.New("connection refused")}
	forGood := &driver.Error{Maybe: true, Permanent: true, Err: errors.New("no permission")}
	silent := clock.Now()
	for _, c := range []struct {
		name           string
		err            error
		after          time.Duration // from the last answer; 0: there never was one
		cut            bool
		single, waiter bool // who waits goes on after a single attempt, or a waiter's
	}{
		{"never answered, unknown", unknown, 0, false, true, true},
		{"never answered, refused", refused, 0, false, false, false},
		{"in an outage, unknown", unknown, ttl - 1, false, true, true},
		{"in an outage, refused", refused, ttl - 1, false, true, true},
		{"after a TTL, unknown", unknown, ttl, false, true, false},
		{"after a TTL, refused", refused, ttl, false, false, false},
		{"for good", forGood, ttl - 1, false, false, false},
		{"the context has ended", unknown, ttl - 1, true, false, false},
	} {
		for wait, want := range map[bool]bool{false: c.single, true: c.waiter} {
			t.Run(fmt.Sprintf("%s, wait %v", c.name, wait), func(t *testing.T) {
				p := &pendingClaim{claim: driver.Claim{TTL: ttl}}
				if c.after != 0 {
					p.outageFrom = silent
				}
				_, goesOn := p.missed(c.err, silent.Add(c.after), &call{wait: wait}, c.cut)
				if goesOn != want {
					t.Errorf("goes on: %v, want %v", goesOn, want)
				}
			})
		}
	}
}
