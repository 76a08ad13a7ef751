package node

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// IdentifyTimeout bounds how long nodes are asked for their identity.
const IdentifyTimeout = time.Second

// identity says which server a node is, by its own word. Guarded by the node's mutex.
type identity struct {
	said    string // last
	version string // of the server that said it; empty if not known
	known   bool   // it was compared with the others, or cannot be
	asking  bool
	next    clock.Instant // when it may be asked again
	sameAs  string        // the name of the node that is the same server
}

// Identify asks the backend which server it talks to.
func (n *Node) Identify(ctx context.Context) (string, error) {
	if b, ok := n.Backend.(driver.Identifier); ok {
		return b.Identity(ctx)
	}
	return "", errAnonymous
}

// Identified notes what [Node.Identify] returned. It returns what the node said last.
func (n *Node) Identified(said string, err error) (last string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := &n.identity
	if err == nil {
		d.said = said
		if v, ok := n.Backend.(driver.Versioner); ok {
			d.version = v.Version()
		}
	}
	// A node that does not answer now is compared by what it said last. If it was restarted since,
	// it compares as another server, and it is compared again when it answers.
	d.known = err == nil || errors.Is(err, errAnonymous)
	d.asking = false
	d.next = clock.Now().Add(IdentifyTimeout)
	n.settleLocked()
	return d.said
}

// SameAs takes the node out of use: it is the same server as the node of that name.
func (n *Node) SameAs(name string) {
	n.mu.Lock()
	n.identity.sameAs = name
	n.settleLocked()
	n.mu.Unlock()
	n.report()
}

// identifyLater has a node identified that did not answer when the others were identified.
func (n *Node) identifyLater() {
	n.mu.Lock()
	d := &n.identity
	start := !d.known && !d.asking && d.sameAs == "" && clock.Now() >= d.next
	d.asking = d.asking || start
	n.mu.Unlock()
	if start {
		n.group.calls.add(1)
		n.group.workers.start(&identification{n.group})
	}
}

// identification has all nodes identified.
type identification struct{ g *Group }

// Run implements Job.
func (i *identification) Run() {
	defer i.g.calls.end()
	ctx, cancel := context.WithTimeout(i.g.base, IdentifyTimeout)
	defer cancel()
	i.g.config.Identify(ctx)
}
