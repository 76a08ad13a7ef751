package lab

import (
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

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
			c.process.freeze()
		}
		time.Sleep(n.while())
		for _, c := range clients {
			c.process.thaw()
		}
		over()
	}},
	{name: "kill", weight: 1, do: func(n *nemesis) {
		c := n.run.clients[n.draw.IntN(len(n.run.clients))]
		over := n.last("kill", []string{c.slot}, "")
		c.process.kill()
		n.run.log.Add(history.Record{Kind: history.Death, Client: c.name, At: history.Now()})
		time.Sleep(n.between(0, n.run.config.TTL))
		if err := n.run.spawn(c); err != nil {
			n.run.fail(err)
		}
		over()
	}},
}
