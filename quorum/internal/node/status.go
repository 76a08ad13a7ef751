package node

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// State is the state of a node, as its answers show it. The zero State is Unasked.
type State uint8

// States of a node, as package quorum describes them.
const (
	Unasked State = iota
	Up
	Down
	Quarantined
	Refusing
	Duplicate
)

// Change says that a node's state has changed.
type Change struct {
	Node       string
	Was, Is    State
	Err        error         // of the last call that failed; nil if Is is Up
	Quarantine time.Duration // how long it takes no part, if Is is Quarantined
}

// Status describes a node.
type Status struct {
	Version    string // of its server; empty if it is not known
	State      State
	Err        error         // of the last call that failed; nil if the last one did not
	Quarantine time.Duration // how long it takes no part; 0 if it is not in quarantine
	Calls      int           // under way or waiting for their turn
	Releases   int           // pending
	Forgotten  uint64        // pending releases that were forgotten because there were too many
}

// Status returns a snapshot.
func (n *Node) Status(now clock.Instant) Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := Status{
		Version: n.identity.version, State: n.stateLocked(now), Calls: int(n.calls.Load()),
		Releases: len(n.releases.list), Forgotten: n.forgotten.Load(),
	}
	if n.breaker.failures > 0 || s.State != Up {
		s.Err = n.lastErr
	}
	if s.State == Quarantined {
		s.Quarantine = n.quarantined.Sub(now)
	}
	return s
}

func (n *Node) stateLocked(now clock.Instant) State {
	switch {
	case n.identity.sameAs != "":
		return Duplicate
	case !n.asked:
		return Unasked
	case n.breaker.down:
		return Down
	case n.refusing != 0:
		return Refusing
	case n.quarantine && n.quarantined > now:
		return Quarantined
	default:
		return Up
	}
}

// report tells the observer the node's state if that is new to it.
func (n *Node) report() {
	n.group.reporting.Lock()
	defer n.group.reporting.Unlock()
	n.mu.Lock()
	now := clock.Now()
	change := Change{Node: n.Name, Was: n.reported, Is: n.stateLocked(now)}
	if change.Is != Up {
		change.Err = n.lastErr
	}
	if change.Is == Quarantined {
		change.Quarantine = n.quarantined.Sub(now)
	}
	n.reported = change.Is
	n.settleLocked()
	n.mu.Unlock()
	if observe := n.group.config.Observe; change.Is != change.Was && observe != nil {
		observe(change)
	}
}
