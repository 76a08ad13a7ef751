//go:build unix

package lab

import (
	"time"
)

// networkFaults are what happens on the way between clients and nodes.
var networkFaults = []fault{
	{name: "partition", weight: 5, do: func(n *nemesis) {
		n.spoil("partition", way{hold: true}, way{hold: true})
	}},
	{name: "requests held", weight: 3, do: func(n *nemesis) {
		n.spoil("requests held", way{hold: true}, way{})
	}},
	{name: "replies held", weight: 3, do: func(n *nemesis) {
		n.spoil("replies held", way{}, way{hold: true})
	}},
	{name: "replies lost", weight: 4, do: func(n *nemesis) {
		n.spoil("replies lost", way{}, way{lose: true})
	}},
	{name: "all lost", weight: 2, do: func(n *nemesis) {
		n.spoil("all lost", way{lose: true}, way{lose: true})
	}},
	{name: "slow", weight: 4, do: func(n *nemesis) {
		ttl := n.run.config.TTL
		n.spoil("slow", way{delay: n.between(0, ttl/10)}, way{delay: n.between(0, ttl/4)})
	}},
	{name: "pipelines split", weight: 4, do: func(n *nemesis) {
		// Others come between the requests of one acquisition, and the connection may end there.
		n.spoil("pipelines split", way{split: n.between(time.Millisecond, n.run.config.TTL/20)},
			way{})
	}},
	{name: "reset", weight: 2, do: func(n *nemesis) {
		links, targets := n.links()
		over := n.last("reset", targets, "")
		for _, l := range links {
			l.cut(false)
		}
		over()
	}},
	{name: "refused", weight: 2, do: func(n *nemesis) {
		links, targets := n.links()
		over := n.last("refused", targets, "")
		for _, l := range links {
			l.cut(true)
		}
		time.Sleep(n.while())
		for _, l := range links {
			l.cut(false)
		}
		over()
	}},
	{name: "half closed", weight: 2, do: func(n *nemesis) {
		links, targets := n.links()
		over := n.last("half closed", targets, "")
		for _, l := range links {
			l.set(way{}, way{hold: true})
			l.halfClose()
		}
		time.Sleep(n.while())
		for _, l := range links {
			l.set(way{}, way{})
		}
		over()
	}},
}

// spoil puts a fault on each direction for a while.
func (n *nemesis) spoil(name string, up, down way) {
	links, targets := n.links()
	over := n.last(name, targets, "")
	for _, l := range links {
		l.set(up, down)
	}
	time.Sleep(n.while())
	for _, l := range links {
		l.set(way{}, way{})
	}
	over()
}

// links draws which part of the network is hit: all links of some clients, all links to some nodes,
// or single ones.
func (n *nemesis) links() (links []*link, targets []string) {
	switch n.draw.IntN(3) {
	case 0:
		for _, c := range some(n.draw, n.run.clients) {
			links = append(links, c.links...)
			targets = append(targets, c.slot)
		}
	case 1:
		for _, node := range some(n.draw, n.run.targets()) {
			targets = append(targets, node.label())
			for _, c := range n.run.clients {
				for _, l := range c.links {
					if l.node == node {
						links = append(links, l)
					}
				}
			}
		}
	default:
		var all []*link
		for _, c := range n.run.clients {
			all = append(all, c.links...)
		}
		for _, l := range some(n.draw, all) {
			links = append(links, l)
			targets = append(targets, l.client+"-"+l.node.label())
		}
	}
	return links, targets
}
