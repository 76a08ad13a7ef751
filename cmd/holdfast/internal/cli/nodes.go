package cli

import (
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/quorum"
)

// nodes reports servers of a set that are down or refuse, once each, and when they are back.
// Neither ends the lock. It says nothing before the lock is acquired, because the error of a failed
// acquisition names the servers anyway.
type nodes struct {
	say func(format string, args ...any) // nil: quiet

	mu      sync.Mutex
	begun   bool
	pending []quorum.NodeEvent          // events before begin
	told    map[string]quorum.NodeState // the bad states that were reported, by node
}

// observe reports an event, or keeps it until begin. It does not block.
func (n *nodes) observe(e quorum.NodeEvent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.begun {
		n.tell(e)
	} else {
		n.pending = append(n.pending, e)
	}
}

// begin reports the last event of each node so far. From then on observe reports at once.
func (n *nodes) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begun = true
	latest := make(map[string]int)
	for i, e := range n.pending {
		latest[e.Node] = i
	}
	for i, e := range n.pending {
		if latest[e.Node] == i {
			n.tell(e)
		}
	}
	n.pending = nil
}

// tell reports an event. The caller holds n.mu.
func (n *nodes) tell(e quorum.NodeEvent) {
	before, unwell := n.told[e.Node]
	switch {
	case n.say == nil:
	case e.Is == quorum.Up && unwell:
		delete(n.told, e.Node)
		n.say("%s: is back", e.Node)
	case e.Is == before:
	case e.Is == quorum.Down || e.Is == quorum.Refusing || e.Is == quorum.Duplicate:
		n.tellOf(e.Node, e.Is, e.Err)
	}
}

// tellOf reports the bad state of a node. The caller holds n.mu.
func (n *nodes) tellOf(node string, state quorum.NodeState, err error) {
	if n.told == nil {
		n.told = make(map[string]quorum.NodeState)
	}
	n.told[node] = state
	cause := ""
	if err != nil {
		// Many errors begin with the node's name, which the line has already.
		cause = ": " + strings.ReplaceAll(strings.TrimPrefix(err.Error(), node+": "), "\n", " ")
	}
	n.say("%s: %v, the others go on without it%s", node, state, cause)
}

// end reports what was not reported yet: nodes that failed too seldom to count as down, and
// warnings about the set.
func (n *nodes) end(status quorum.Status) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.say == nil || !n.begun {
		return
	}
	for _, s := range status.Nodes {
		if _, told := n.told[s.Name]; !told && s.Err != nil && s.State != quorum.Quarantined {
			n.tellOf(s.Name, quorum.Down, s.Err)
		}
	}
	for _, line := range status.Warnings() {
		if name, _, ok := strings.Cut(line, ": "); !ok || n.told[name] == quorum.Unasked {
			n.say("%s", line)
		}
	}
}
