package memhold

import "github.com/holdfast-go/holdfast/internal/clock"

// Size returns how many entries the memory keeps, and how many its map is made for.
func (b *Backend) Size() (entries, room int) {
	b.memory.mu.Lock()
	defer b.memory.mu.Unlock()
	return len(b.memory.keys), b.memory.peak
}

// Timers returns how many timers run.
func (b *Backend) Timers() int {
	b.memory.mu.Lock()
	defer b.memory.mu.Unlock()
	n := 0
	for _, e := range b.memory.keys {
		// Stop reports whether the timer ran; nothing else tells. So it is started again.
		if e.queue != nil && e.queue.timer.Stop() {
			e.queue.timer.Reset(e.queue.at.Sub(clock.Now()))
			n++
		}
	}
	return n
}

// Halt makes all calls of the memory wait for resume.
func (b *Backend) Halt() (resume func()) {
	b.memory.mu.Lock()
	return b.memory.mu.Unlock
}

// Quiet reports whether calls bypass the faults.
func (b *Backend) Quiet() bool { return !b.faulty.Load() }
