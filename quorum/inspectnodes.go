package quorum

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// NodeEntry is what one node knows of a key.
type NodeEntry struct {
	Node  string       // its name
	Entry driver.Entry // zero if Err is set
	Err   error        // why nothing is known; nil if the node has answered
}

// InspectNodes describes a key as each node knows it, in the order of the nodes. It is for finding
// out how a node differs from the others; [Quorum.Inspect] says what counts. It waits for a
// majority until ctx ends, and then a moment more for the others. If a node does not answer, its
// entry says so. InspectNodes fails with ErrUnavailable after Close, or if ctx has already ended.
func (q *Quorum) InspectNodes(ctx context.Context, key string) ([]NodeEntry, error) {
	if err := q.ready(ctx); err != nil {
		return nil, err
	}
	replies := gather(ctx, q, everybody(inspect(key)))
	entries := make([]NodeEntry, len(replies))
	for i, r := range replies {
		entries[i] = NodeEntry{Node: q.nodes[i].Name, Entry: r.value, Err: r.err}
	}
	return entries, nil
}
