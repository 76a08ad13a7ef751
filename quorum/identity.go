package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// identifyTimeout bounds how long nodes are asked for their identity, which New waits for.
const identifyTimeout = time.Second

// errAnonymous: the backend cannot tell which server it talks to.
var errAnonymous = errors.New("does not say which server it is")

// identify asks all nodes who they are, and marks those that are the same server as one before them. It returns
// an error that names them.
func (q *Quorum) identify(ctx context.Context) error {
	replies := gather(ctx, q, func(ctx context.Context, b driver.Backend) (string, error) {
		if id, ok := b.(driver.Identified); ok {
			return id.Identity(ctx)
		}
		return "", errAnonymous
	})
	var same []error
	first := make(map[string]*node)
	for i, n := range q.nodes {
		r := &replies[i]
		n.mu.Lock()
		if r.err == nil {
			n.identity = r.value
			if v, ok := n.backend.(driver.Versioned); ok {
				n.version = v.Version()
			}
		}
		// A node that does not answer now is compared by what it said last. If it has been restarted since
		// then, that compares unequal, and is made up for when it answers.
		identity := n.identity
		n.identified = r.err == nil || errors.Is(r.err, errAnonymous)
		n.identifying = false
		n.nextIdentify = clock.Now().Add(identifyTimeout)
		n.settleLocked()
		n.mu.Unlock()
		if identity == "" {
			continue
		}
		other := first[identity]
		if other == nil {
			first[identity] = n
			continue
		}
		same = append(same, fmt.Errorf("%w: %s and %s", ErrSameServer, other.name, n.name))
		n.mu.Lock()
		n.sameAs = other.name
		n.settleLocked()
		n.mu.Unlock()
		q.report(n)
	}
	return errors.Join(same...)
}

// identifyLater has a node identified that was not there when the others were.
func (q *Quorum) identifyLater(n *node) {
	n.mu.Lock()
	start := !n.identified && !n.identifying && n.sameAs == "" && clock.Now() >= n.nextIdentify
	n.identifying = n.identifying || start
	n.mu.Unlock()
	if start {
		q.flight.add(1)
		q.crew.start(&identification{q})
	}
}

// identification is identify as a job.
type identification struct{ q *Quorum }

// run implements job.
func (i *identification) run() {
	defer i.q.flight.end()
	ctx, cancel := context.WithTimeout(i.q.base, identifyTimeout)
	defer cancel()
	// What it finds is in the nodes' state.
	_ = i.q.identify(ctx)
}
