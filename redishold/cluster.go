package redishold

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// sharded is the transport of a cluster. It knows which server serves which slot, and learns of
// changes from redirections, and by asking when a server does not answer.
type sharded struct {
	config *config
	slots  [protocol.Slots]atomic.Pointer[node]
	look   *occasional

	mu      sync.Mutex
	closed  bool
	nodes   map[string]*node      // by address
	retired map[*node]*time.Timer // those that serve nothing any more; the timer closes them
	asking  *topology             // under way
}

// topology is one look at which server serves which slot. All callers that need it share one.
type topology struct {
	done chan struct{}
	err  error
}

const (
	// topologyPatience bounds asking for the slots; one server's answer is enough.
	topologyPatience = 2 * time.Second

	// lingering is how long the connection to a server that serves no slots any more is kept, for
	// requests on their way.
	lingering = 10 * time.Second
)

func newCluster(g *config) *sharded {
	t := &sharded{config: g, nodes: make(map[string]*node), retired: make(map[*node]*time.Timer)}
	t.look = &occasional{pause: troublePause, run: func() { t.refresh(context.Background()) }}
	for _, address := range g.addresses {
		t.nodes[address] = t.newNode(address)
	}
	return t
}

func (t *sharded) newNode(address string) *node {
	return &node{
		config:  t.config,
		name:    address,
		find:    func(context.Context) (string, error) { return address, nil },
		trouble: func() { t.look.ask() },
		check: func(s *protocol.Server, _ bool) error {
			if !s.Cluster {
				return &driver.Error{Node: s.Name, Permanent: true,
					Err: errors.New("the server is not in cluster mode: use redis://")}
			}
			return nil
		},
	}
}

// node returns the server at the address, which may be new.
func (t *sharded) node(address string) (*node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, &driver.Error{Permanent: true, Err: errClosed}
	}
	n := t.nodes[address]
	if n == nil {
		n = t.newNode(address)
		t.nodes[address] = n
	}
	return n, nil
}

func (t *sharded) Conn(ctx context.Context, slot uint16) (protocol.Conn, error) {
	n := t.slots[slot].Load()
	if n == nil {
		if err := t.refresh(ctx); err != nil {
			return nil, err
		}
		if n = t.slots[slot].Load(); n == nil {
			return nil, &driver.Error{Err: fmt.Errorf("no server of the cluster serves slot %d",
				slot)}
		}
	}
	c, err := n.connect(ctx)
	if err != nil {
		t.look.ask()
		return nil, err
	}
	return c, nil
}

func (t *sharded) Shard(slot uint16) string {
	if n := t.slots[slot].Load(); n != nil {
		return n.name
	}
	return ""
}

func (t *sharded) Follow(ctx context.Context, slot uint16, address string) (protocol.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &driver.Error{Err: fmt.Errorf("redirected to %q: %w", address, err)}
	}
	if host == "" || host == "?" {
		// The server does not know its own name, so use the one by which the cluster was reached.
		host, _, _ = net.SplitHostPort(t.config.addresses[0])
	}
	n, err := t.node(net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	if slot < protocol.Slots {
		t.slots[slot].Store(n)
		t.look.ask() // a slot rarely moves alone
	}
	c, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (t *sharded) All(ctx context.Context) ([]protocol.Conn, error) {
	if err := t.refresh(ctx); err != nil {
		return nil, err
	}
	var nodes []*node
	for slot := range t.slots {
		if n := t.slots[slot].Load(); n != nil && !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	conns := make([]protocol.Conn, 0, len(nodes))
	for _, n := range nodes {
		c, err := n.connect(ctx)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

func (t *sharded) Ordered() bool { return true }

func (t *sharded) Cluster() bool { return true }

func (t *sharded) Listen(f func(*protocol.Server, string)) { t.config.hear = f }

func (t *sharded) Close() error {
	t.look.stop()
	t.mu.Lock()
	t.closed = true
	var nodes []*node
	for _, n := range t.nodes {
		nodes = append(nodes, n)
	}
	for n, timer := range t.retired {
		timer.Stop()
		nodes = append(nodes, n)
	}
	t.mu.Unlock()
	for _, n := range nodes {
		n.close() // takes the node's mutex, under which it may ask for a look
	}
	return nil
}

// refresh asks who serves what, or waits for a look that is under way.
func (t *sharded) refresh(ctx context.Context) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return &driver.Error{Permanent: true, Err: errClosed}
	}
	a := t.asking
	if a == nil {
		a = &topology{done: make(chan struct{})}
		t.asking = a
		go func() {
			a.err = t.ask()
			t.mu.Lock()
			t.asking = nil
			t.mu.Unlock()
			close(a.done)
		}()
	}
	t.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return &driver.Error{Err: ctx.Err()}
	}
}

// ask asks all servers at once and takes the first answer, so a server that hangs or is gone does
// not delay it.
func (t *sharded) ask() error {
	ctx, cancel := context.WithTimeout(context.Background(), topologyPatience)
	defer cancel()
	t.mu.Lock()
	nodes := make([]*node, 0, len(t.nodes))
	for _, n := range t.nodes {
		nodes = append(nodes, n)
	}
	// Include those of the URL, even if they served nothing last time.
	for _, address := range t.config.addresses {
		if t.nodes[address] == nil {
			n := t.newNode(address)
			t.nodes[address] = n
			nodes = append(nodes, n)
		}
	}
	t.mu.Unlock()
	type answer struct {
		ranges []slotRange
		err    error
	}
	answers := make(chan answer, len(nodes))
	for _, n := range nodes {
		go func() {
			ranges, err := n.slots(ctx)
			answers <- answer{ranges, err}
		}()
	}
	var failure error = &driver.Error{Err: errors.New("no server of the cluster is known")}
	for i := range nodes {
		a := <-answers
		if a.err == nil {
			return t.take(a.ranges)
		}
		if i == 0 || driver.Permanent(a.err) {
			failure = a.err
		}
	}
	return failure
}

// slotRange is a run of slots and the address of their server.
type slotRange struct {
	first, last int64
	address     string
}

// slots asks the server for the slots of all servers.
func (n *node) slots(ctx context.Context) ([]slotRange, error) {
	c, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	result := c.wire.Do(ctx, c.wire.B().ClusterSlots().Build())
	entries, err := result.ToArray()
	if err != nil {
		if text, ok := serverText(err); ok {
			return nil, protocol.ServerFailure(c.name, text, false)
		}
		return nil, &driver.Error{Node: c.name, Err: err}
	}
	host, _, _ := net.SplitHostPort(c.name)
	var ranges []slotRange
	for i := range entries {
		if r, ok := parseSlotRange(&entries[i], host); ok {
			ranges = append(ranges, r)
		}
	}
	if len(ranges) == 0 {
		return nil, &driver.Error{Node: c.name,
			Err: errors.New("no server of the cluster serves any slot")}
	}
	return ranges, nil
}

// parseSlotRange reads one entry of CLUSTER SLOTS: first and last slot, then the primary and the
// replicas. A server that does not know its name gets host, the name by which it was reached.
func parseSlotRange(entry *rueidis.RedisMessage, host string) (slotRange, bool) {
	fields, err := entry.ToArray()
	if err != nil || len(fields) < 3 {
		return slotRange{}, false
	}
	first, err1 := fields[0].ToInt64()
	last, err2 := fields[1].ToInt64()
	primary, err3 := fields[2].ToArray()
	if err1 != nil || err2 != nil || err3 != nil || len(primary) < 2 || first < 0 || first > last ||
		last >= protocol.Slots {
		return slotRange{}, false
	}
	if name, err := primary[0].ToString(); err == nil && name != "" && name != "?" {
		host = name
	}
	port, err := primary[1].ToInt64()
	if err != nil {
		return slotRange{}, false
	}
	return slotRange{first, last, net.JoinHostPort(host, strconv.FormatInt(port, 10))}, true
}

// take applies an answer. Nobody serves slots that it does not mention.
func (t *sharded) take(ranges []slotRange) error {
	var serves [protocol.Slots]*node
	for _, r := range ranges {
		n, err := t.node(r.address)
		if err != nil {
			return err
		}
		for slot := r.first; slot <= r.last; slot++ {
			serves[slot] = n
		}
	}
	serving := make(map[*node]bool)
	for slot, n := range serves {
		t.slots[slot].Store(n)
		serving[n] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for address, n := range t.nodes {
		if !serving[n] {
			delete(t.nodes, address)
			t.retire(n)
		}
	}
	return nil
}

// retire closes a server's connection after a while. Called with t.mu held.
func (t *sharded) retire(n *node) {
	t.retired[n] = time.AfterFunc(lingering, func() {
		n.close()
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.retired, n)
	})
}
