//go:build unix

package lab

import "time"

// clientFaults are what happens to processes that lock.
var clientFaults = []fault{
	{name: "pause", weight: 3, do: func(n *nemesis) {
		clients := some(n.draw, n.run.clients)
		var targets []string
		for _, c := range clients {
			targets = append(targets, c.slot)
		}
		over := n.last("pause", targets, "")
		for _, c := range clients {
			c.mu.Lock()
			c.process.freeze()
		}
		time.Sleep(n.while())
		for _, c := range clients {
			c.process.thaw()
			c.mu.Unlock()
		}
		over()
	}},
	{name: "kill", weight: 1, do: func(n *nemesis) {
		c := n.run.clients[n.draw.IntN(len(n.run.clients))]
		c.mu.Lock()
		defer c.mu.Unlock()
		over := n.last("kill", []string{c.slot}, "")
		n.run.kill(c)
		time.Sleep(n.between(0, n.run.config.TTL))
		if err := n.run.spawn(c); err != nil {
			n.run.fail(err)
		}
		over()
	}},
}
