package simulate

import (
	"context"
	"math/rand/v2"
	"sync"
)

// moments makes callers give up at the very moment at which something comes for them: their turn,
// the order to lead, an answer, a notice. By fake time alone, two things would not happen at one
// moment.
type moments struct {
	mu      sync.Mutex
	r       *rand.Rand
	callers []*caller // those that wait, in the order in which they came
}

// caller is a call that waits for a key.
type caller struct {
	key     int
	giveUp  context.CancelFunc
	leaving bool
}

// waits registers a call that may give up when a moment comes, until the function that it returns
// is called.
func (m *moments) waits(ctx context.Context, key int) (context.Context, func()) {
	ctx, giveUp := context.WithCancel(ctx)
	c := &caller{key: key, giveUp: giveUp}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.callers = append(m.callers, c)
	return ctx, func() {
		giveUp()
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, other := range m.callers {
			if other == c {
				m.callers = append(m.callers[:i], m.callers[i+1:]...)
				break
			}
		}
	}
}

// strike, with a chance, makes the caller that has waited longest for the key give up, or all of
// them.
func (m *moments) strike(key int, chance float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.callers) == 0 || m.r.Float64() > chance {
		return
	}
	all := m.r.IntN(4) == 0
	for _, c := range m.callers {
		if c.key != key || c.leaving {
			continue
		}
		c.leaving = true
		if c.giveUp(); !all {
			return
		}
	}
}
