package board

import (
	"sync"
	"time"
)

// feed has the newest state for all viewers: as a whole, and as what has changed since the state
// before. Each form is encoded once.
type feed struct {
	mu      sync.Mutex
	changed chan struct{} // closed by the next publish
	began   time.Time     // of the look at work; zero if there is none
	version uint64        // 0: nothing was published yet
	state   *state
	delta   []byte // from the version before
	full    []byte // nil: nobody has asked for it yet
	old     bool   // nobody has looked since, because there was no viewer
}

// begin notes that a look has begun.
func (f *feed) begin(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = at
}

// publish sends the state to the viewers.
func (f *feed) publish(s *state) {
	delta := s.delta()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	f.began, f.state, f.delta, f.full, f.old = time.Time{}, s, delta, nil, false
	close(f.changed)
	f.changed = make(chan struct{})
}

// outdate notes that nobody looks any more. The next viewer waits for what the next look finds,
// because what was seen last may be hours old by then.
func (f *feed) outdate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = true
}

// after returns the text that brings a viewer up to date that has seen a version, and the new
// version. text is nil if nothing is new. Then changed is closed when something is.
func (f *feed) after(seen uint64) (text []byte, version uint64, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case seen == f.version, f.old:
		return nil, seen, f.changed
	case seen > 0 && seen == f.version-1:
		return f.delta, f.version, nil
	case f.full == nil:
		f.full = f.state.full()
	}
	return f.full, f.version, nil
}

// asking returns since when the backend is being asked; zero if it is not.
func (f *feed) asking() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began
}
