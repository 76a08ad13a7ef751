//go:build unix

package lab

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// nemesis breaks things. What it does is drawn from the seed; when it does it also depends on how
// fast the machine is. Three of them are at work: one for servers, one for the network, one for
// clients. So there are up to three kinds of faults at once. Each of them may hit several targets.
type nemesis struct {
	run    *run
	draw   *rand.Rand
	faults []fault // those that make sense, each as often as its weight says
	deck   []fault // those that are to come before any comes again
	drawn  string  // name of the fault at work
}

// fault is something that a nemesis can do. It takes as long as the fault does, and undoes it.
// Nothing ends it earlier.
type fault struct {
	name   string
	weight int
	only   func(c *Config) bool // whether it makes sense; nil: always
	do     func(n *nemesis)
}

// kinds returns all faults for the system, by what they hit.
func (s System) kinds() map[string][]fault {
	servers := serverFaults
	if s != Redis {
		servers = slices.Concat(memberFaults, faultsOf[s])
	}
	return map[string][]fault{"servers": servers, "network": networkFaults,
		"clients": clientFaults}
}

// nemeses returns the three of them, and records what each may do.
func (r *run) nemeses() (all []*nemesis) {
	for i, kind := range []string{"servers", "network", "clients"} {
		n := &nemesis{run: r, draw: rand.New(rand.NewPCG(r.config.Seed, uint64(i)+1000))}
		for _, f := range r.config.System.kinds()[kind] {
			if f.only != nil && !f.only(&r.config) || !r.config.allows(f.name) {
				continue
			}
			r.log.Add(history.Record{Kind: history.Plan, Name: f.name, Target: kind,
				Count: f.weight})
			for range f.weight {
				n.faults = append(n.faults, f)
			}
		}
		all = append(all, n)
	}
	return all
}

// work breaks things until ctx ends.
func (n *nemesis) work(ctx context.Context) {
	if len(n.faults) == 0 {
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		// Without some peace nothing would be held, and there would be nothing to break.
		wait, cancel := context.WithTimeout(ctx,
			n.between(n.run.config.TTL/10, n.run.config.TTL*3/2))
		<-wait.Done()
		cancel()
		if ctx.Err() == nil {
			f := n.next()
			n.drawn = f.name
			f.do(n)
		}
	}
}

// next draws a fault. All come up before one comes up more often than its weight says, so none is
// left out for long.
func (n *nemesis) next() (f fault) {
	if len(n.deck) == 0 {
		for _, i := range n.draw.Perm(len(n.faults)) {
			n.deck = append(n.deck, n.faults[i])
		}
	}
	f, n.deck = n.deck[0], n.deck[1:]
	return f
}

// between draws a time.
func (n *nemesis) between(from, to time.Duration) time.Duration {
	return from + time.Duration(n.draw.Int64N(int64(to-from)))
}

// while draws for how long a fault lasts: mostly less than a lease, at times more.
func (n *nemesis) while() time.Duration {
	ttl := n.run.config.TTL
	if n.draw.IntN(3) == 0 {
		return n.between(ttl, 2*ttl)
	}
	return n.between(ttl/40, ttl)
}

// some draws at least one of them, and most often not more than a quorum survives.
func some[T any](draw *rand.Rand, all []T) []T {
	n := 1
	if len(all) > 1 {
		n = 1 + draw.IntN((len(all)+1)/2)
		if draw.IntN(8) == 0 {
			n = len(all)
		}
	}
	var chosen []T
	for _, i := range draw.Perm(len(all))[:n] {
		chosen = append(chosen, all[i])
	}
	return chosen
}

// one draws one of them.
func one[T any](draw *rand.Rand, all []T) T { return all[draw.IntN(len(all))] }

// last records a fault on targets that lasts until the function returned is called.
func (n *nemesis) last(name string, targets []string, breaks string) (over func()) {
	return n.during(history.Record{Name: name, Target: strings.Join(targets, " "), Breaks: breaks})
}

// forget records, as last does, a fault by which servers forget what they stored, or come back with
// older data.
func (n *nemesis) forget(name string, servers []*Node, breaks string) (over func()) {
	return n.during(history.Record{Name: name, Target: targets(servers), Breaks: breaks,
		Forget: true})
}

func (n *nemesis) during(fault history.Record) (over func()) {
	fault.Kind, fault.At, fault.Drawn = history.Fault, history.Now(), n.drawn
	return func() {
		fault.Until = history.Now()
		n.run.log.Add(fault)
	}
}

// targets names nodes as the record of a fault does.
func targets(nodes []*Node) string { return strings.Join(names(nodes), " ") }

func names(nodes []*Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}
