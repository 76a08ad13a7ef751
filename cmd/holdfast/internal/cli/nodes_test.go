package cli_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/quorum"
)

// TestNodesAreToldOnce: a bad state of a server is reported once, not before there is a lock, and
// so is its return.
func TestNodesAreToldOnce(t *testing.T) {
	refused := errors.New("a:1: backend unavailable: connection\nrefused")
	event := func(node string, is quorum.NodeState, err error) quorum.NodeEvent {
		return quorum.NodeEvent{Node: node, Is: is, Err: err}
	}
	n := cli.NewNodes()
	n.Observe(event("a:1", quorum.Down, refused), event("b:1", quorum.Down, refused),
		event("b:1", quorum.Up, nil), event("c:1", quorum.Up, nil))
	if len(n.Said) != 0 {
		t.Errorf("said before there is a lock: %q", n.Said)
	}
	n.Begin()
	n.Observe(event("a:1", quorum.Down, refused), event("d:1", quorum.Quarantined, nil),
		event("a:1", quorum.Up, nil),
		event("e:1", quorum.Refusing, errors.New("NOAUTH")), event("a:1", quorum.Up, nil),
		event("a:1", quorum.Down, refused))
	n.End(quorum.Status{Nodes: []quorum.NodeStatus{
		{Name: "a:1", State: quorum.Down, Err: refused},
		{Name: "c:1", State: quorum.Up, Err: errors.New("c:1: no such host")},
		{Name: "d:1", State: quorum.Up},
		{Name: "e:1", State: quorum.Refusing, Err: errors.New("NOAUTH")},
	}})
	want := []string{
		"a:1: down, the others go on without it: backend unavailable: connection refused",
		"a:1: is back",
		"e:1: refusing, the others go on without it: NOAUTH",
		"a:1: down, the others go on without it: backend unavailable: connection refused",
		"c:1: down, the others go on without it: no such host",
	}
	if !slices.Equal(n.Said, want) {
		t.Errorf("said %q; want %q", n.Said, want)
	}
}
