package lab

import (
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// The documented assumptions that faults may break. Where one is broken two holders are no violation: they are reported with
// the reason.
const (
	forgets = "a lone server forgot its locks (R29)"
	unsaved = "a power failure took what was not synced (R31)"
	jumps   = "a server's wall clock was set forward (R39)"
	evicts  = "a server evicted keys"
)

func single(c *Config) bool { return c.Nodes == 1 }

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
		// With a quarantine, as an operator would do it: one is back before the next one goes.
		for _, node := range n.run.nodes {
			n.restart("rolling restart", []*Node{node}, 100*time.Millisecond, false)
			time.Sleep(n.run.config.Guard + time.Second)
		}
	}},
	{name: "power failure", weight: 2, only: func(c *Config) bool { return c.Persistence == EverySec }, do: func(n *nemesis) {
		n.restart("power failure", some(n.draw, n.run.nodes), n.while(), true)
	}},
	{name: "script flush", weight: 1, do: func(n *nemesis) { n.command("script flush", "SCRIPT", "FLUSH") }},
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
	{name: "eviction", weight: 1, only: func(c *Config) bool { return c.Limits }, do: func(n *nemesis) {
		nodes := some(n.draw, n.run.nodes)
		over := n.last("eviction", names(nodes), evicts)
		n.configure(nodes, "maxmemory-policy", "volatile-random", "maxmemory", "1")
		time.Sleep(n.between(time.Millisecond, 50*time.Millisecond))
		n.configure(nodes, "maxmemory", "0", "maxmemory-policy", "noeviction")
		over()
	}},
	{name: "clock forward", weight: 2, only: func(c *Config) bool { return c.Limits }, do: func(n *nemesis) { n.stepClock(1) }},
	{name: "clock back", weight: 2, only: func(c *Config) bool { return c.Limits }, do: func(n *nemesis) { n.stepClock(-1) }},
}

// restart kills nodes, leaves them down for some time, and starts them on what they have kept.
func (n *nemesis) restart(name string, nodes []*Node, down time.Duration, power bool) {
	persistence := n.run.config.Persistence
	breaks := ""
	switch {
	case !single(&n.run.config): // that is what the quarantine is for
		if n.run.config.Guard == 0 && persistence != Always {
			breaks = "no quarantine (R29)"
		}
	case persistence == Memory:
		breaks = forgets
	case power:
		breaks = unsaved
	}
	over := n.last(name+", "+string(persistence), names(nodes), breaks)
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
				node.process.kill()
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

func (n *nemesis) command(name string, args ...string) {
	nodes := some(n.draw, n.run.nodes)
	over := n.last(name, names(nodes), "")
	for _, node := range nodes {
		node.Do(args...)
	}
	over()
}

func (n *nemesis) configure(nodes []*Node, settings ...string) {
	for _, node := range nodes {
		for i := 0; i < len(settings); i += 2 {
			if _, err := node.Do("CONFIG", "SET", settings[i], settings[i+1]); err != nil {
				n.run.fail(err)
			}
		}
	}
}

// stepClock sets wall clocks off and later back. Only the step that leads forward ends leases early.
func (n *nemesis) stepClock(sign time.Duration) {
	nodes := some(n.draw, n.run.nodes)
	step := sign * n.between(n.run.config.TTL/4, 4*n.run.config.TTL)
	over := n.last("clock "+step.Round(time.Millisecond).String(), names(nodes), "")
	set := func(step time.Duration, forward bool) {
		at := history.Now()
		for _, node := range nodes {
			if err := node.SetClock(step); err != nil {
				n.run.fail(err)
			}
		}
		if forward {
			n.run.log.Add(history.Record{Kind: history.Fault, At: at, Until: history.Now() + int64(10*time.Millisecond), Name: "clock set forward by " + strconv.Itoa(int(step.Abs().Milliseconds())) + " ms",
				Target: names(nodes)[0], Breaks: jumps})
		}
	}
	set(step, step > 0)
	time.Sleep(n.while())
	set(0, step < 0)
	over()
}
