package quorum

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// identify asks all nodes who they are, and marks each that is the same server as an earlier one.
// It returns an error that names them.
func (q *Quorum) identify(ctx context.Context) error {
	replies := gather(ctx, q, everybody(func(ctx context.Context, n *node.Node) (string,
		error) {
		return n.Identify(ctx)
	}))
	var same []error
	first := make(map[string]*node.Node)
	for i, n := range q.nodes {
		identity := n.Identified(replies[i].value, replies[i].err)
		if identity == "" {
			continue
		}
		other := first[identity]
		if other == nil {
			first[identity] = n
			continue
		}
		same = append(same, fmt.Errorf("%w: %s and %s", ErrSameServer, other.Name, n.Name))
		n.SameAs(other.Name)
	}
	return errors.Join(same...)
}
