package quorum

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// NodeState says in which state a node is, as its answers tell. The zero NodeState is Unasked.
type NodeState uint8

const (
	// Unasked: the node was not asked yet.
	Unasked NodeState = iota
	// Up: the node answered, or failed to once since it did.
	Up
	// Down: several calls in a row failed. The node is asked now and then, and whenever the others do not make a majority.
	Down
	// Quarantined: the node answers, and takes no part yet after a restart.
	Quarantined
	// Refusing: the node answers, and refuses for a reason that does not go away by itself, a wrong password for example.
	// It is asked as before.
	Refusing
	// Duplicate: the node is the same server as another one, and is not asked any more.
	Duplicate
)

// String returns the state's name in lower case.
func (s NodeState) String() string {
	switch s {
	case Unasked:
		return "unasked"
	case Up:
		return "up"
	case Down:
		return "down"
	case Quarantined:
		return "quarantined"
	case Refusing:
		return "refusing"
	case Duplicate:
		return "duplicate"
	default:
		return "invalid"
	}
}

// NodeEvent tells that a node's state has changed.
type NodeEvent struct {
	Node       string        // the name of the node
	Was        NodeState     // the state before
	Is         NodeState     // the state now
	Err        error         // of the last call that failed; nil if Is is Up
	Quarantine time.Duration // how long it takes no part, if Is is Quarantined
}

// Status is a snapshot of the nodes and of the counters.
type Status struct {
	Need  int          // how many nodes make a majority
	Nodes []NodeStatus // in the order in which they were given to New
	Counts
}

// NodeStatus describes one node.
type NodeStatus struct {
	Name       string // as its errors name it
	Version    string // of its server; empty if it is not known
	State      NodeState
	Err        error         // of the last call that failed; nil if the last one did not
	Quarantine time.Duration // how long it takes no part; 0 if it is not in quarantine
	Pending    int           // calls that wait for its answer or for their turn
	Owed       int           // releases that it has not confirmed yet
}

// Counts count since New.
type Counts struct {
	Acquired     uint64 // acquisitions with a majority, handoffs not counted
	SecondRounds uint64 // acquisitions and renewals in which nodes disagreed about the token, which cost a second round trip
	Unraised     uint64 // those of them in which a majority did not acknowledge it
	TooLate      uint64 // majorities that were reached after the validity had ended
	Handoffs     uint64 // grants of queued claims by a majority of notices
	Returned     uint64 // grants of single nodes that a waiter gave back
	Healed       uint64 // claims that were sent again to a node that had lost them
	Forgotten    uint64 // unconfirmed releases that were forgotten: there were too many
}

type counters struct {
	acquired, secondRounds, unraised, tooLate, handoffs, returned, healed, forgotten atomic.Uint64
}

// Status returns a snapshot. It asks no node and is cheap.
func (q *Quorum) Status() Status {
	c := &q.counters
	status := Status{
		Need:  q.need,
		Nodes: make([]NodeStatus, len(q.nodes)),
		Counts: Counts{
			Acquired:     c.acquired.Load(),
			SecondRounds: c.secondRounds.Load(),
			Unraised:     c.unraised.Load(),
			TooLate:      c.tooLate.Load(),
			Handoffs:     c.handoffs.Load(),
			Returned:     c.returned.Load(),
			Healed:       c.healed.Load(),
			Forgotten:    c.forgotten.Load(),
		},
	}
	now := clock.Now()
	for i, n := range q.nodes {
		status.Nodes[i] = n.status(now)
	}
	return status
}

func (n *node) status(now clock.Instant) NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := NodeStatus{Name: n.name, Version: n.version, State: n.stateLocked(now), Pending: int(n.pending.Load()), Owed: len(n.debts)}
	if n.failures > 0 || s.State != Up {
		s.Err = n.lastErr
	}
	if s.State == Quarantined {
		s.Quarantine = n.quarantined.Sub(now)
	}
	return s
}

func (n *node) stateLocked(now clock.Instant) NodeState {
	switch {
	case n.sameAs != "":
		return Duplicate
	case !n.asked:
		return Unasked
	case n.down:
		return Down
	case n.refusing:
		return Refusing
	case n.quarantine && n.quarantined > now:
		return Quarantined
	default:
		return Up
	}
}

// note takes note of how a call to a node ended.
func (q *Quorum) note(n *node, err error, vote, probe bool) {
	changed, work := n.note(err, vote, probe)
	if changed {
		q.report(n)
	}
	if work {
		if n.stopFlushTimer() {
			q.crew.start(&flush{q, n})
		}
		q.identifyLater(n)
	}
}

// report tells the observer the node's state, if it does not know it.
func (q *Quorum) report(n *node) {
	q.reporting.Lock()
	defer q.reporting.Unlock()
	n.mu.Lock()
	now := clock.Now()
	event := NodeEvent{Node: n.name, Was: n.reported, Is: n.stateLocked(now)}
	if event.Is != Up {
		event.Err = n.lastErr
	}
	if event.Is == Quarantined {
		event.Quarantine = n.quarantined.Sub(now)
	}
	n.reported = event.Is
	n.settleLocked()
	n.mu.Unlock()
	if event.Is != event.Was && q.config.observer != nil {
		q.config.observer(event)
	}
}

// Warnings says what is wrong with the nodes in a way that does not pass by itself, a line for each: nodes that refuse, that
// are another node under a second name, and servers of different major versions. nil if nothing is known to be.
func (s *Status) Warnings() (lines []string) {
	versions := make(map[string][]string) // by major version
	for i := range s.Nodes {
		n := &s.Nodes[i]
		switch n.State {
		case Refusing:
			lines = append(lines, (&NodeError{Node: n.Name, Err: n.Err}).Error())
		case Duplicate:
			lines = append(lines, fmt.Sprintf("%s: is the same server as another node, and has no vote", n.Name))
		}
		if major, _, ok := strings.Cut(n.Version, "."); ok {
			versions[major] = append(versions[major], n.Name+" has "+n.Version)
		}
	}
	if len(versions) > 1 {
		all := slices.Concat(slices.Collect(maps.Values(versions))...)
		slices.Sort(all)
		lines = append(lines, "servers of different major versions: "+strings.Join(all, ", "))
	}
	return lines
}
