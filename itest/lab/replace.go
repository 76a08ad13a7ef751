//go:build unix

package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold"
)

// replace puts another server in the place of one, as the documentation of quorum tells an operator
// to: the new one is empty and has another address, the guard differs by a millisecond, and the
// servers are adopted while clients work. Clients are restarted one after the other, some before
// that, some meanwhile, and some afterwards. Nothing that promises rest on is broken.
func (n *nemesis) replace() {
	r := n.run
	node := r.nodes[n.draw.IntN(len(r.nodes))]
	early := n.draw.IntN(2) == 0 // the former server ends before all clients know of the new one

	over := n.forget("server replaced", []*Node{node}, "")
	defer over()
	former, err := node.replace()
	defer func() { r.crashed(former.Kill()) }()
	if err != nil {
		r.fail(err)
		return
	}
	r.guard += time.Millisecond
	n.adopt(func() {
		if early {
			r.crashed(former.Kill())
		}
	})
}

// resize adds empty servers to the set, or leaves them out again. The guard stays as it is.
// Otherwise it works like replace. Servers that were left out are shut down.
func (n *nemesis) resize() {
	r := n.run
	spare := r.nodes[r.config.Nodes:]
	name, size := "servers added", len(r.nodes)
	if r.size == size {
		name, size = "servers left out", r.config.Nodes
	}
	over := n.forget(name, spare, "")
	defer over()
	r.size = size
	n.adopt(func() {})
	if size == len(r.nodes) {
		return
	}
	for _, node := range spare { // the next ones to be added are others
		former, err := node.replace()
		r.crashed(former.Kill())
		if err != nil {
			r.fail(err)
		}
	}
}

// adopt moves servers and clients to the present set, and calls adopted in between.
func (n *nemesis) adopt(adopted func()) {
	r := n.run
	order := n.draw.Perm(len(r.clients))
	before := n.draw.IntN(len(order) + 1)
	meanwhile := before + n.draw.IntN(len(order)+1-before)
	reconfigure := func(clients []int) {
		for _, i := range clients {
			time.Sleep(n.while())
			if err := r.reconfigure(r.clients[i]); err != nil {
				r.fail(err)
			}
		}
	}
	reconfigure(order[:before])
	var err error
	var adoption sync.WaitGroup
	adoption.Go(func() { err = r.adopt() })
	reconfigure(order[before:meanwhile])
	adoption.Wait()
	if err != nil {
		r.fail(err)
	}
	adopted()
	reconfigure(order[meanwhile:])
}

// reconfigure restarts a client for the present set of servers.
func (r *run) reconfigure(c *client) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.kill(c)
	c.guard, c.size = r.guard, r.size
	for _, l := range c.links {
		l.lead()
	}
	return r.spawn(c)
}

// adopt makes the servers adopt the present set.
func (r *run) adopt() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var nodes []driver.Backend
	for _, node := range r.nodes[:r.size] {
		b, err := redishold.Open(ctx, "redis://"+node.Addr, redishold.WithoutConnecting())
		if err != nil {
			return err
		}
		nodes = append(nodes, b)
	}
	q, err := quorum.New(nodes, quorum.WithGuard(r.guard))
	if err != nil {
		return err
	}
	defer q.Close()
	for {
		err := q.Adopt(ctx, r.config.TTL)
		if err == nil {
			return nil
		}
		if errors.Is(err, quorum.ErrSetInUse) || ctx.Err() != nil {
			return fmt.Errorf("adopt the servers: %w", err)
		}
		time.Sleep(r.config.TTL / 20) // a server was not reached; adoption goes on where it was
	}
}
