package simulate

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// stack is what the Lockers of a history stand on.
type stack interface {
	// size is how many nodes it has.
	size() int
	// connect gives a process its backend, and the ways to all nodes.
	connect(p *process) (driver.Backend, []path)
	// inspect says what each node knows of a key, whatever the weather.
	inspect(key string) []driver.Entry
	// lose deletes a key by hand.
	lose(key string)
	// suspend is told when all is suspended.
	suspend(d time.Duration)
	close()
}

// path is the way of a process to a node, and what may go wrong there.
type path interface {
	fail(kind outage, d time.Duration)
	fade(d, silence time.Duration)
	pause(d time.Duration)
	pausing() time.Duration
	mend()
	kill() // what is sent from now on gets lost, for good
	lags(d time.Duration) bool
}

// newStack makes the stack that the plan names.
func newStack(p *plan) stack {
	if p.redis {
		return newRedis(p.nodes)
	}
	s := new(memory)
	for range p.nodes {
		s.nodes = append(s.nodes, memhold.New(memhold.WithPresence(p.presence)))
	}
	return s
}

// memory is a stack of one memory, or of a quorum of several.
type memory struct {
	nodes []*memhold.Backend // seen without any weather
}

func (s *memory) size() int { return len(s.nodes) }

func (s *memory) suspend(time.Duration) {}

func (s *memory) connect(p *process) (driver.Backend, []path) {
	var wires []path
	var backends []driver.Backend
	for i, node := range s.nodes {
		w := newWire(p.h, p, i, node.Client())
		wires = append(wires, w)
		backends = append(backends, w)
	}
	return p.h.quorum(backends), wires
}

// quorum returns a quorum of the nodes, or the only one.
func (h *history) quorum(nodes []driver.Backend) driver.Backend {
	if len(nodes) == 1 {
		return nodes[0]
	}
	// The nodes never forget, so there is nothing to guard against.
	q, err := quorum.New(nodes, quorum.WithGuard(0))
	if err != nil {
		panic(fmt.Sprintf("%v: quorum.New: %v", h.plan, err))
	}
	return q
}

func (s *memory) inspect(key string) (entries []driver.Entry) {
	for _, node := range s.nodes {
		e, err := node.Inspect(context.Background(), key)
		if err != nil {
			panic(err)
		}
		entries = append(entries, e)
	}
	return entries
}

func (s *memory) lose(key string) {
	for _, node := range s.nodes {
		node.Faults().Lose(key)
	}
}

func (s *memory) close() {
	for _, node := range s.nodes {
		node.Close()
	}
}
