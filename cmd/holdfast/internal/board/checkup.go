package board

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

const (
	// checkEvery is how often the servers are examined. An examination asks each server for its
	// whole configuration.
	checkEvery = 30 * time.Second

	// mostFindings is how many findings are shown; the worst come first.
	mostFindings = 200
)

// examination is what the backend's check has found.
type examination struct {
	Checks       bool      `json:"checks"`            // the backend can be examined
	Checked      int64     `json:"checked,omitempty"` // when it was
	CheckTrouble string    `json:"check_trouble,omitempty"`
	Findings     []finding `json:"findings"`
}

// finding is a driver.Finding in printable text.
type finding struct {
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Node     string `json:"node,omitempty"`
	Summary  string `json:"summary"`
	Advice   string `json:"advice"`
}

var severities = map[driver.Severity]string{
	driver.Note: "note", driver.Warning: "warning", driver.Failure: "failure",
}

// checkup examines the servers now and then, beside the looks.
type checkup struct {
	mu      sync.Mutex
	running bool
	due     time.Time
	now     examination
}

// begin starts an examination of the servers if it is time.
func (c *checkup) begin(ctx context.Context, o *Options, work *sync.WaitGroup, at time.Time) {
	checker, ok := o.Backend.(driver.Checker)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Checks = ok
	if !ok || c.running || at.Before(c.due) {
		return
	}
	c.running = true
	work.Go(func() {
		found, err := look.Ask(ctx, o.View, func(ctx context.Context) ([]driver.Finding, error) {
			return o.View.Check(ctx, checker)
		})
		now := examination{Checks: true, Checked: millis(time.Now())}
		if err != nil {
			now.CheckTrouble = cut(look.Line(o.Hide(err.Error())))
		}
		for _, f := range found[:min(len(found), mostFindings)] {
			now.Findings = append(now.Findings, finding{severities[f.Severity], f.Code,
				look.Line(o.Hide(f.Node)), look.Line(o.Hide(f.Summary)),
				look.Line(o.Hide(f.Advice))})
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running, c.due, c.now = false, time.Now().Add(checkEvery), now
	})
}

// result returns what the last examination has found.
func (c *checkup) result() examination {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now
	now.Findings = list(now.Findings)
	return now
}

// health is how the servers of a set are.
type health struct {
	Need  int    `json:"need,omitempty"` // how many make a majority
	Nodes []node `json:"nodes"`
}

// node is one server of a set.
type node struct {
	Name         string `json:"name"`
	Version      string `json:"version,omitempty"`
	State        string `json:"state"`
	Trouble      string `json:"trouble,omitempty"`
	QuarantineMS int64  `json:"quarantine,omitempty"`
	Pending      int    `json:"pending,omitempty"`
	Owed         int    `json:"owed,omitempty"`
}

// set is a backend of several servers.
type set interface {
	Status() quorum.Status
	InspectNodes(ctx context.Context, key string) ([]quorum.NodeEntry, error)
}

// probed is a name that each server of a set is asked for.
const probed = "holdfast-board"

// healthOf asks each server of a set for a key. The server's state alone tells only of calls that
// lock.
func healthOf(ctx context.Context, o *Options) health {
	h, hide := health{Nodes: []node{}}, o.Hide
	set, ok := o.Backend.(set)
	if !ok {
		return h
	}
	answers, err := look.Ask(ctx, o.View,
		func(ctx context.Context) ([]quorum.NodeEntry, error) {
			return set.InspectNodes(ctx, o.View.Prefix+probed)
		})
	status := set.Status()
	h.Need = status.Need
	for i, n := range status.Nodes {
		failure := err
		if i < len(answers) {
			failure = answers[i].Err
		}
		n.State, n.Err = stateOf(n.State, failure), failure
		one := node{Name: look.Line(hide(n.Name)), Version: look.Line(n.Version),
			State: n.State.String(), QuarantineMS: n.Quarantine.Milliseconds(),
			Pending: n.Pending, Owed: n.Owed}
		if n.Err != nil {
			one.Trouble = cut(look.Line(hide(strings.TrimPrefix(n.Err.Error(), n.Name+": "))))
		}
		h.Nodes = append(h.Nodes, one)
	}
	return h
}

// stateOf is the state of a server that has just answered, or failed to.
func stateOf(was quorum.NodeState, failure error) quorum.NodeState {
	var e *driver.Error
	switch {
	case failure == nil && (was == quorum.Quarantined || was == quorum.Duplicate):
		return was
	case failure == nil:
		return quorum.Up
	case errors.As(failure, &e) && e.Permanent:
		return quorum.Refusing
	default:
		return quorum.Down
	}
}
