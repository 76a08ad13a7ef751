//go:build unix

package lab

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// The documented assumptions that faults may break. If one is broken, two holders are no violation:
// they are reported with the reason.
const (
	forgets  = "a lone server forgot its locks (R29)"
	unguard  = "a server forgot its locks, and there was no quarantine (R29)"
	rolled   = "a lone server came back with older data (R29)"
	unsaved  = "a power failure took what was not synced (R31)"
	jumps    = "a server's wall clock was set forward (R39)"
	runsFast = "a server's wall clock ran faster than the drift allowance (R19)"
	takeover = "a replica took over that had not heard of the last locks (R4)"
	revokes  = "an etcd ended leases of others when it was the leader no more"
	evicts   = "a server evicted keys"
	deleted  = "somebody deleted the key of a lock"
)

func single(c *Config) bool { return c.Nodes == 1 }
func limits(c *Config) bool { return c.Limits }

// forgetful reports whether a server may forget, or come back with older data. On a single server
// that breaks what is promised; over several the quarantine is for that. If the clocks of clients
// differ, tokens rest on what servers keep.
func forgetful(c *Config) bool {
	return c.Limits || c.Nodes > 1 && c.Guard > 0 && c.Persistence != Always && c.Skew == 0
}

// serverFaults are what happens to redis-servers.
var serverFaults = []fault{
	{name: "freeze", weight: 6, do: func(n *nemesis) {
		nodes := some(n.draw, n.run.nodes)
		over := n.last("freeze", names(nodes), "")
		for _, node := range nodes {
			node.process.freeze()
		}
		time.Sleep(n.while())
		for _, node := range nodes {
			node.process.thaw()
		}
		over()
	}},
	{name: "restart", weight: 4, do: func(n *nemesis) {
		n.restart("restart", some(n.draw, n.run.nodes), n.while(), false)
	}},
	{name: "rolling restart", weight: 1, do: func(n *nemesis) {
		// With a quarantine, servers restart as an operator would do it: one is back before the
		// next one stops.
		for _, node := range n.run.nodes {
			n.restart("rolling restart", []*Node{node}, 100*time.Millisecond, false)
			time.Sleep(n.run.config.Guard + time.Second)
		}
	}},
	{name: "power failure", weight: 2, only: func(c *Config) bool {
		return c.Persistence != Memory
	}, do: func(n *nemesis) {
		n.restart("power failure", some(n.draw, n.run.nodes), n.while(), true)
	}},
	{name: "script flush", weight: 1, do: func(n *nemesis) {
		n.command("script flush", "SCRIPT", "FLUSH")
	}},
	{name: "client kill", weight: 2, do: func(n *nemesis) {
		kind := "normal"
		if n.draw.IntN(2) == 0 {
			kind = "pubsub"
		}
		n.command("client kill "+kind, "CLIENT", "KILL", "TYPE", kind)
	}},
	{name: "out of memory", weight: 1, do: func(n *nemesis) {
		nodes := some(n.draw, n.run.nodes)
		over := n.last("out of memory", names(nodes), "")
		n.configure(nodes, "maxmemory", "1")
		time.Sleep(n.while())
		n.configure(nodes, "maxmemory", "0")
		over()
	}},
	{name: "eviction", weight: 1, only: limits, do: func(n *nemesis) {
		nodes := some(n.draw, n.run.nodes)
		over := n.last("eviction", names(nodes), evicts)
		n.configure(nodes, "maxmemory-policy", "volatile-random", "maxmemory", "1")
		time.Sleep(n.between(time.Millisecond, 50*time.Millisecond))
		n.configure(nodes, "maxmemory", "0", "maxmemory-policy", "noeviction")
		over()
	}},
	{name: "deletion", weight: 1, only: limits, do: func(n *nemesis) { n.remove() }},
	{name: "rollback", weight: 2, only: forgetful, do: func(n *nemesis) { n.rollBack() }},
	{name: "persistence in the file", weight: 2, only: forgetful, do: func(n *nemesis) {
		nodes := some(n.draw, n.run.nodes)
		for _, node := range nodes {
			node.unsure = true
			node.Persistence = []Persistence{Memory, EverySec, Always}[n.draw.IntN(3)]
		}
		n.restart("persistence in the file", nodes, n.between(0, 100*time.Millisecond), false)
	}},
	{name: "persistence switched", weight: 1, only: forgetful, do: func(n *nemesis) {
		// This lasts as long as the server runs: its effect shows at the next start.
		nodes := some(n.draw, n.run.nodes)
		over := n.last("persistence switched", names(nodes), "")
		append, sync := []string{"yes", "no"}[n.draw.IntN(2)],
			[]string{"always", "everysec", "no"}[n.draw.IntN(3)]
		for _, node := range nodes {
			node.unsure = true
			n.configure([]*Node{node}, "appendfsync", sync, "appendonly", append)
			if err := node.rewritten(); err != nil {
				n.run.fail(err)
			}
		}
		over()
	}},
	{name: "replica", weight: 1, only: func(c *Config) bool {
		return c.voters() > 1 && (c.Limits || c.Guard > 0 && c.Skew == 0)
	}, do: func(n *nemesis) {
		// The server loses its data, and has the other one's data for a while. No restart shows
		// that. The quarantine is for that, too. A server without a set takes no part, because one
		// that forgets its set may belong to another.
		order := n.draw.Perm(n.run.size)
		node, primary := n.run.nodes[order[0]], n.run.nodes[order[1]]
		over := n.forget("replica", []*Node{node}, n.forgotten(unguard))
		host, port, _ := net.SplitHostPort(primary.Addr)
		n.do(node, "REPLICAOF", host, port)
		// copying takes a second or so, and does not always end in time
		time.Sleep(n.between(0, 3*time.Second))
		n.do(node, "REPLICAOF", "NO", "ONE")
		over()
	}},
	{name: "slot moved", weight: 8, only: func(c *Config) bool {
		return c.Cluster && !c.Replicas
	}, do: func(n *nemesis) { n.moveSlot() }},
	{name: "failover", weight: 8, only: func(c *Config) bool {
		return c.Replicas
	}, do: func(n *nemesis) { n.takeOver() }},
	{name: "failover", weight: 8, only: func(c *Config) bool {
		return c.Sentinel
	}, do: func(n *nemesis) { n.failover() }},
	{name: "server replaced", weight: 4, only: func(c *Config) bool {
		return c.Replacing
	}, do: func(n *nemesis) { n.replace() }},
	{name: "number of servers changed", weight: 4, only: func(c *Config) bool {
		return c.Grown > 0
	}, do: func(n *nemesis) { n.resize() }},
	{name: "subscriptions refused", weight: 2, only: func(c *Config) bool {
		return !c.Mute
	}, do: func(n *nemesis) {
		nodes := some(n.draw, n.run.nodes)
		over := n.last("subscriptions refused", names(nodes), "")
		for _, node := range nodes {
			n.do(node, "ACL", "SETUSER", "default", "-subscribe", "-ssubscribe")
			n.do(node, "CLIENT", "KILL", "TYPE", "pubsub")
		}
		time.Sleep(n.while())
		for _, node := range nodes {
			n.do(node, "ACL", "SETUSER", "default", "+subscribe", "+ssubscribe")
		}
		over()
	}},
	{name: "clock rate", weight: 2, do: func(n *nemesis) {
		// Within the drift allowance, which is a hundredth.
		n.rateClock(n.draw.Int64N(8001)-4000, "")
	}},
	{name: "clock fast", weight: 1, only: limits, do: func(n *nemesis) {
		n.rateClock(100_000+n.draw.Int64N(900_001), runsFast)
	}},
	{name: "clock slow", weight: 1, only: limits, do: func(n *nemesis) {
		n.rateClock(-100_000-n.draw.Int64N(400_001), "")
	}},
	{name: "clock forward", weight: 2, only: limits, do: func(n *nemesis) { n.stepClock(1) }},
	{name: "clock back", weight: 2, only: limits, do: func(n *nemesis) { n.stepClock(-1) }},
}

// forgotten returns the assumption that is broken if nodes come back without data, or with older
// data. Whether they do depends on what they keep.
func (n *nemesis) forgotten(reason string) string {
	switch {
	case single(&n.run.config):
		return reason
	case n.run.config.Guard == 0:
		return unguard
	default: // the quarantine is for that
		return ""
	}
}

// mayForget reports whether one of the servers may have lost something that it has answered. A
// server that syncs before it answers loses nothing, however it ends.
func mayForget(nodes []*Node) bool {
	return slices.ContainsFunc(nodes, func(node *Node) bool {
		return node.unsure || node.Persistence != Always
	})
}

// restart kills nodes, leaves them down for some time, and starts them on what they have kept.
func (n *nemesis) restart(name string, nodes []*Node, down time.Duration, power bool) {
	persistence := n.run.config.Persistence
	breaks := ""
	switch {
	case slices.ContainsFunc(nodes, func(node *Node) bool {
		return node.unsure || node.Persistence == Memory
	}):
		breaks = n.forgotten(forgets)
	case power && persistence != Always:
		breaks = n.forgotten(unsaved)
	}
	over := n.during(history.Record{Name: name + ", " + string(persistence),
		Target: targets(nodes), Breaks: breaks, Forget: mayForget(nodes)})
	moment := n.between(time.Millisecond, time.Second)
	var each sync.WaitGroup
	for _, node := range nodes {
		each.Go(func() {
			if power {
				synced := node.Written()
				time.Sleep(moment)
				if err := node.PowerFailure(synced); err != nil {
					n.run.fail(err)
				}
			} else {
				n.run.crashed(node.Kill())
			}
		})
	}
	each.Wait()
	time.Sleep(down)
	for _, node := range nodes {
		if err := node.start(); err != nil {
			n.run.fail(err)
		}
	}
	over()
}

// remove deletes a key. Like other faults, it most often picks as many servers as a quorum
// survives.
func (n *nemesis) remove() {
	nodes := some(n.draw, n.run.nodes)
	key := one(n.draw, n.run.stored())
	start := history.Now()
	for _, node := range nodes {
		n.do(node, "DEL", prefix+key)
	}
	n.run.log.Add(history.Record{Kind: history.Fault, At: start, Until: history.Now(),
		Name: "deletion", Drawn: n.drawn, Target: targets(nodes), Key: key, Breaks: deleted})
}

// rollBack starts nodes on what they had some time before.
func (n *nemesis) rollBack() {
	nodes := some(n.draw, n.run.nodes)
	for _, node := range nodes {
		if err := node.Save(); err != nil {
			n.run.fail(err)
			return
		}
	}
	time.Sleep(n.while())
	over := n.forget("rollback, "+string(n.run.config.Persistence), nodes, n.forgotten(rolled))
	for _, node := range nodes {
		n.run.crashed(node.Kill())
	}
	time.Sleep(n.between(0, 100*time.Millisecond))
	for _, node := range nodes {
		if err := node.RollBack(); err != nil {
			n.run.fail(err)
		}
	}
	over()
}

func (n *nemesis) command(name string, args ...string) {
	nodes := some(n.draw, n.run.nodes)
	over := n.last(name, names(nodes), "")
	for _, node := range nodes {
		n.do(node, args...)
	}
	over()
}

// do makes a server carry out a command. Without it there is no fault.
func (n *nemesis) do(node *Node, args ...string) {
	if _, err := node.Do(args...); err != nil {
		n.run.fail(fmt.Errorf("%s: %q: %w", node.Name, args, err))
	}
}

func (n *nemesis) configure(nodes []*Node, settings ...string) {
	for _, node := range nodes {
		for i := 0; i < len(settings); i += 2 {
			n.do(node, "CONFIG", "SET", settings[i], settings[i+1])
		}
	}
}

// stepClock sets wall clocks wrong and later right again. Only the step forward ends leases early.
func (n *nemesis) stepClock(sign time.Duration) {
	nodes := some(n.draw, n.run.nodes)
	step := sign * n.between(n.run.config.TTL/4, 4*n.run.config.TTL)
	over := n.last("clock "+step.Round(time.Millisecond).String(), names(nodes), "")
	set := func(by time.Duration) {
		at := history.Now()
		for _, node := range nodes {
			if err := node.StepClock(by); err != nil {
				n.run.fail(err)
			}
		}
		if by > 0 {
			n.run.log.Add(history.Record{Kind: history.Fault, At: at, Until: history.Now() +
				int64(10*time.Millisecond), Name: "clock set forward by " +
				strconv.Itoa(int(step.Abs().Milliseconds())) + " ms",
				Target: targets(nodes), Breaks: jumps})
		}
	}
	set(step)
	time.Sleep(n.while())
	set(-step)
	over()
}

// rateClock makes wall clocks go at another rate for a while, by so many millionths. They do not
// jump, so they stay wrong by what has added up.
func (n *nemesis) rateClock(millionths int64, breaks string) {
	nodes := some(n.draw, n.run.nodes)
	name := "clock rate"
	switch {
	case millionths >= 100_000:
		name = "clock fast"
	case millionths <= -100_000:
		name = "clock slow"
	}
	over := n.last(name+", "+strconv.FormatFloat(float64(millionths)/10_000, 'f', 2, 64)+" %",
		names(nodes), breaks)
	for _, rate := range []int64{millionths, 0} {
		for _, node := range nodes {
			if err := node.RateClock(rate); err != nil {
				n.run.fail(err)
			}
		}
		if rate != 0 {
			time.Sleep(n.while())
		}
	}
	over()
}
