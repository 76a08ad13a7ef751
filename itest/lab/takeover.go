//go:build unix

package lab

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// replicate makes the server the replica of a primary of the cluster, and waits until it has the
// primary's data.
func (n *Node) replicate(ctx context.Context, primary *Node) error {
	id, err := primary.Do("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	told := false // once: each time it would begin to connect from the start
	left := eventually(ctx, patience, func() ([]string, error) {
		if !told {
			if _, err := n.Do("CLUSTER", "REPLICATE", fmt.Sprint(id)); err != nil {
				return nil, err // it has not heard of the primary yet
			}
			told = true
		}
		return n.behind()
	})
	if left != "" {
		return fmt.Errorf("%s does not follow %s: %s", n.Name, primary.Name, left)
	}
	return nil
}

// behind says what is wrong while the server is not a replica that has its primary's data.
func (n *Node) behind() ([]string, error) {
	role, err := n.Do("ROLE")
	fields, _ := role.([]any)
	if err != nil || len(fields) == 5 && fields[0] == "slave" && fields[3] == "connected" {
		return nil, err
	}
	return []string{fmt.Sprint(role)}, nil
}

// takeOver makes the replica of a part of the cluster's slots take the place of its primary. The
// primary becomes its replica.
func (n *nemesis) takeOver() {
	r := n.run
	shard := n.draw.IntN(r.config.Nodes)
	start := history.Now()
	over := n.last("failover", names(r.shard(shard)), "")
	defer over()
	behind := time.Duration(0)
	if n.draw.IntN(2) == 0 {
		behind = n.while()
	}
	if err := r.takeOver(shard, func() { time.Sleep(behind) }, behind > 0); err != nil {
		r.fail(err)
	}
	// The cluster counts as one server, and only keys of this part may have been forgotten.
	for _, key := range r.inPart(shard) {
		r.log.Add(history.Record{Kind: history.Fault, At: start, Until: history.Now(),
			Name: "keys at a failover", Target: targets(r.nodes), Key: key, Breaks: takeover,
			Forget: true})
	}
}

// inPart returns the keys of locks that are in a part of the cluster's slots.
func (r *run) inPart(i int) []string {
	return slices.DeleteFunc(r.stored(), func(key string) bool {
		return r.part(protocol.Slot(prefix+key)) != i
	})
}

// part returns in which of the cluster's parts the slot was at first.
func (r *run) part(slot uint16) (i int) {
	for int(slot) >= (i+1)*protocol.Slots/r.config.Nodes {
		i++
	}
	return i
}

// shard returns the servers of a part of the cluster's slots: the one that was its primary at
// first, and the one that was its replica.
func (r *run) shard(i int) []*Node { return []*Node{r.nodes[i], r.nodes[r.config.Nodes+i]} }

// takeOver makes the replica take over, and calls before right before that. If cut is set, the
// replica hears nothing from the primary from then on.
func (r *run) takeOver(shard int, before func(), cut bool) error {
	servers := r.shard(shard)
	from, to := servers[0], servers[1]
	slot := shard * protocol.Slots / r.config.Nodes
	address, err := from.serving(slot)
	if err != nil {
		return err
	}
	if address != r.address(from) {
		from, to = to, from
	}
	if left := eventually(context.Background(), patience, to.behind); left != "" {
		return fmt.Errorf("%s is not up to date: %s", to.Name, left)
	}
	if cut {
		for _, command := range [][]string{{"ACL", "SETUSER", "default", "-psync", "-sync"},
			{"CLIENT", "KILL", "TYPE", "replica"}} {
			if _, err := from.Do(command...); err != nil {
				return fmt.Errorf("%s: %q: %w", from.Name, command, err)
			}
		}
		defer from.Do("ACL", "SETUSER", "default", "+psync", "+sync")
	}
	before()
	if _, err := to.Do("CLUSTER", "FAILOVER", "TAKEOVER"); err != nil {
		return fmt.Errorf("%s does not take over: %w", to.Name, err)
	}
	left := eventually(context.Background(), patience, func() (wrong []string, err error) {
		for _, n := range r.nodes {
			address, err := n.serving(slot)
			if err != nil {
				return nil, err
			}
			if address != r.address(to) {
				wrong = append(wrong, n.Name+" says "+address)
			}
		}
		return wrong, nil
	})
	if left != "" {
		return fmt.Errorf("not all know that %s has taken over: %s", to.Name, left)
	}
	return nil
}

// address returns the one by which clients and the cluster know the server.
func (r *run) address(n *Node) string {
	for _, l := range r.shared {
		if l.node == n {
			return l.address()
		}
	}
	panic("a server without a link")
}

// serving returns the address of the server that serves the slot, according to n.
func (n *Node) serving(slot int) (address string, err error) {
	reply, err := n.Do("CLUSTER", "SLOTS")
	if err != nil {
		return "", err
	}
	parts, _ := reply.([]any)
	for _, part := range parts {
		fields, _ := part.([]any)
		if len(fields) < 3 {
			continue
		}
		first, _ := fields[0].(int64)
		last, _ := fields[1].(int64)
		owner, _ := fields[2].([]any)
		if first <= int64(slot) && int64(slot) <= last && len(owner) >= 2 {
			return net.JoinHostPort(fmt.Sprint(owner[0]), fmt.Sprint(owner[1])), nil
		}
	}
	return "nobody", nil
}
