package node

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// readingAge: a reading of a node's clock counts as lower by its age divided by readingAge.
const readingAge = 100

// reading is what a node's clock showed. Guarded by the node's mutex.
type reading struct {
	ahead  int64 // of the lease clock at least, in microseconds
	at     clock.Instant
	taken  bool
	silent bool // the node does not say what its clock shows
}

// TellsClock reports whether an answer to op with that result is one in which a node tells what its
// clock shows, if the node can.
func TellsClock(op Operation, result *driver.Result) bool {
	return op == Acquiring && result.State == driver.Busy && result.Presence > 0
}

// read notes what the node's clock showed at some time between sent and now.
func (n *Node) read(clockShows uint64, sent, now clock.Instant) {
	earliest, latest := int64(clockShows)-Microseconds(now), int64(clockShows)-Microseconds(sent)
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &n.reading
	if clockShows == 0 {
		r.silent = true
		return
	}
	worth := r.ahead - int64(now.Sub(r.at)/time.Microsecond)/readingAge
	if !r.taken || earliest >= worth || latest < r.ahead {
		r.ahead, r.at, r.taken = earliest, now, true
	}
}

// Clock returns by how many microseconds, at least, the node's clock is ahead of the lease clock of
// this process, and whether that is known. silent reports that the node does not tell its clock.
func (n *Node) Clock() (ahead int64, known, silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reading.ahead, n.reading.taken, n.reading.silent
}

// Microseconds returns an instant of the lease clock in microseconds.
func Microseconds(i clock.Instant) int64 { return int64(i) / int64(time.Microsecond) }
