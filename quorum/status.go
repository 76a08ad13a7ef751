package quorum

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// NodeState is the state of a node, as its answers show it. The zero NodeState is Unasked.
type NodeState uint8

const (
	// Unasked: the node has not been asked yet.
	Unasked = NodeState(node.Unasked)
	// Up: the node has answered, and has failed at most once since then.
	Up = NodeState(node.Up)
	// Down: two or more calls in a row have failed. The node is asked now and then, and whenever
	// the others do not make a majority.
	Down = NodeState(node.Down)
	// Quarantined: the node answers, but takes no part yet after a restart.
	Quarantined = NodeState(node.Quarantined)
	// Refusing: the node answers, but refuses for a permanent reason, such as a wrong password. It
	// is asked as before.
	Refusing = NodeState(node.Refusing)
	// Duplicate: the node is the same server as another one, and is not asked any more.
	Duplicate = NodeState(node.Duplicate)
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

// NodeEvent says that a node's state has changed.
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
	Acquired uint64 // acquisitions with a majority, handoffs not counted
	// acquisitions and renewals that took a second round trip, because nodes disagreed on the token
	SecondRounds uint64
	Unraised     uint64 // second round trips in which no majority acknowledged the token
	TooLate      uint64 // majorities reached after the validity had ended
	Handoffs     uint64 // grants of queued claims by a majority of notices
	Returned     uint64 // grants of single nodes that a waiter gave back
	Healed       uint64 // claims sent again to a node that had lost them, or had no vote
	Forgotten    uint64 // unconfirmed releases that were dropped, because there were too many
}

type counters struct {
	acquired, secondRounds, unraised, tooLate, handoffs, returned, healed atomic.Uint64
}

// Status returns a snapshot. It asks no node, and works after Close.
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
		},
	}
	now := clock.Now()
	for i, n := range q.nodes {
		s := n.Status(now)
		status.Forgotten += s.Forgotten
		status.Nodes[i] = NodeStatus{
			Name: n.Name, Version: s.Version, State: NodeState(s.State), Err: s.Err,
			Quarantine: s.Quarantine,
			Pending:    s.Calls, Owed: s.Releases,
		}
	}
	return status
}

// observe returns the function that nodes report their state to; nil if there is no observer.
func (c *config) observe() func(node.Change) {
	if c.observer == nil {
		return nil
	}
	return func(change node.Change) { c.observer(event(change)) }
}

// event returns a change of a node's state in the form for the observer.
func event(c node.Change) NodeEvent {
	return NodeEvent{Node: c.Node, Was: NodeState(c.Was), Is: NodeState(c.Is), Err: c.Err,
		Quarantine: c.Quarantine}
}

// Warnings returns a line for each permanent fault of the nodes: a node that refuses, a node that
// is another one under a second name, servers of different major versions. It returns nil if none
// is known.
func (s *Status) Warnings() (lines []string) {
	versions := make(map[string][]string) // by major version
	for i := range s.Nodes {
		n := &s.Nodes[i]
		switch n.State {
		case Refusing:
			lines = append(lines, (&NodeError{Node: n.Name, Err: n.Err}).Error())
		case Duplicate:
			lines = append(lines,
				fmt.Sprintf("%s: is the same server as another node, and has no vote", n.Name))
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
