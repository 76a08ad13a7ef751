//go:build unix

package lab

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// clusterURL returns the URL of the cluster that the links lead to.
func clusterURL(links []*link) string {
	var addresses []string
	for _, l := range links {
		addresses = append(addresses, l.address())
	}
	return "redis+cluster://" + strings.Join(addresses, ",")
}

// How long a server of a cluster may be silent before the others find it down, in milliseconds.
// While servers meet it is long, because it also bounds the answer of a server that is met, and
// nobody asks that again.
const meeting, running = "600000", "1000"

// findDown lets the servers find each other down from now on, also after a restart.
func (r *run) findDown() error {
	for _, n := range r.nodes {
		n.extra = append(n.extra, "--cluster-node-timeout", running)
		if reply, err := n.Do("CONFIG", "SET", "cluster-node-timeout", running); err != nil ||
			reply != "OK" {
			return fmt.Errorf("%s: cluster-node-timeout: %v, %w", n.Name, reply, err)
		}
	}
	return nil
}

// busPort returns a free port, beside the server's own, at which the other servers of the cluster
// reach it.
func busPort(own string) (string, error) {
	for {
		bus, err := freeAddress()
		if err != nil {
			return "", err
		}
		if _, port, _ := net.SplitHostPort(bus); port != own {
			return port, nil
		}
	}
}

// startCluster starts the servers as a cluster, in which none finds another one down yet. No
// replica takes over by itself: the nemesis draws which one does, and when. Each server tells
// clients the address of a link to it, which all clients share. It is one function because servers
// become a cluster by these steps, in this order.
func (r *run) startCluster(ctx context.Context) (err error) {
	buses := make(map[*Node]string)
	prepare := func(n *Node) error {
		l, err := newLink("all", n, r.config.Latency)
		if err != nil {
			return err
		}
		r.shared = append(r.shared, l)
		host, port, _ := net.SplitHostPort(l.address())
		_, own, _ := net.SplitHostPort(n.Addr)
		if buses[n], err = busPort(own); err != nil {
			return err
		}
		// If a server is down, its own keys are not served, and all others are.
		n.extra = []string{"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-port", buses[n], "--cluster-node-timeout", meeting,
			"--cluster-require-full-coverage", "no", "--cluster-announce-ip", host,
			"--cluster-announce-port", port, "--cluster-replica-no-failover", "yes"}
		return nil
	}
	primaries, count := r.config.Nodes, r.config.Nodes
	if r.config.Replicas {
		count *= 2
	}
	if r.nodes, r.stopNodes, err = startNodes(ctx, r.config.Dir, count, r.config.Persistence,
		prepare); err != nil {
		return err
	}
	r.owners = make(map[uint16]*Node)
	for i, n := range r.nodes[:primaries] {
		from, to := i*protocol.Slots/primaries, (i+1)*protocol.Slots/primaries-1
		for _, command := range [][]string{
			{"CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to)},
			{"CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i + 1)},
		} {
			if reply, err := n.Do(command...); err != nil || reply != "OK" {
				return fmt.Errorf("%s: %q: %v, %w", n.Name, command, reply, err)
			}
		}
	}
	for _, n := range r.nodes {
		host, port, _ := net.SplitHostPort(n.Addr)
		if reply, err := r.nodes[0].Do("CLUSTER", "MEET", host, port, buses[n]); err != nil ||
			reply != "OK" {
			return fmt.Errorf("%s is not met: %v, %w", n.Name, reply, err)
		}
	}
	for _, n := range r.nodes {
		if left := eventually(ctx, patience, n.unknownSlots); left != "" {
			return fmt.Errorf("%s is not in the cluster: %s", n.Name, left)
		}
	}
	for i, n := range r.nodes[primaries:] {
		if err := n.replicate(ctx, r.nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

// unknownSlots says what is wrong while the server does not know who serves all slots.
func (n *Node) unknownSlots() ([]string, error) {
	reply, err := n.Do("CLUSTER", "INFO")
	text, _ := reply.(string)
	if err != nil || strings.Contains(text, "cluster_state:ok") &&
		strings.Contains(text, fmt.Sprintf("cluster_slots_ok:%d", protocol.Slots)) {
		return nil, err
	}
	return []string{text}, nil
}

// owner returns the server that serves the slot.
func (r *run) owner(slot uint16) *Node {
	if n := r.owners[slot]; n != nil {
		return n
	}
	return r.nodes[r.part(slot)]
}

// slotOfLock draws a slot with a key of a lock.
func (n *nemesis) slotOfLock() uint16 {
	return protocol.Slot(prefix + one(n.draw, n.run.stored()))
}

// moveSlot moves the slot of a lock from one server to another while clients work.
func (n *nemesis) moveSlot() {
	r := n.run
	slot := n.slotOfLock()
	from := r.owner(slot)
	to := from
	for to == from {
		to = r.nodes[n.draw.IntN(len(r.nodes))]
	}
	over := n.last("slot moved", names([]*Node{from, to}), "")
	defer over()
	steps := []func() error{
		func() error { return migrate(from, to, slot, n.while()) },
		func() error { return hand(from, to, slot) },
	}
	for _, step := range steps {
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			err := step() // each may be repeated
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				r.fail(fmt.Errorf("move slot %d from %s to %s: %w", slot, from.Name, to.Name, err))
				return
			}
		}
	}
	r.owners[slot] = to
}

// migrate moves all keys of a slot to another server. New keys are made there meanwhile.
func migrate(from, to *Node, slot uint16, pause time.Duration) error {
	number := strconv.Itoa(int(slot))
	fromID, err := from.Do("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	toID, err := to.Do("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	if _, err := to.Do("CLUSTER", "SETSLOT", number, "IMPORTING", fmt.Sprint(fromID)); err != nil {
		return err
	}
	if _, err := from.Do("CLUSTER", "SETSLOT", number, "MIGRATING", fmt.Sprint(toID)); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(to.Addr)
	for {
		reply, err := from.Do("CLUSTER", "GETKEYSINSLOT", number, "100")
		if err != nil {
			return err
		}
		keys, _ := reply.([]any)
		if len(keys) == 0 {
			return nil
		}
		for _, key := range keys {
			time.Sleep(pause / 4) // some of a lock's keys are here, and some there
			if _, err := from.Do("MIGRATE", host, port, fmt.Sprint(key), "0", "5000",
				"REPLACE"); err != nil {
				return err
			}
		}
	}
}

// hand tells all servers that another one serves the slot now. The new server is told first, so
// that the former never sends clients to a server that does not serve the slot yet.
func hand(from, to *Node, slot uint16) error {
	id, err := to.Do("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	for _, n := range []*Node{to, from} {
		if _, err := n.Do("CLUSTER", "SETSLOT", strconv.Itoa(int(slot)), "NODE",
			fmt.Sprint(id)); err != nil {
			return err
		}
	}
	return nil
}
