package lab

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// nemesis breaks things. What it does is drawn from the seed; when it does it also depends on how fast the machine is. There
// are three of them at work: one for servers, one for the network, one for clients. So there are up to three kinds of faults
// at once, and each of them may hit several targets.
type nemesis struct {
	run  *run
	draw *rand.Rand
}

// fault is something that a nemesis can do. It takes as long as the fault does, undoes it, and is not ended by anything.
type fault struct {
	name   string
	weight int
	only   func(c *Config) bool // whether it makes sense; nil: always
	do     func(n *nemesis)
}

// nemeses do their work until ctx ends.
func (r *run) nemeses(ctx context.Context) {
	var all sync.WaitGroup
	for i, faults := range [][]fault{serverFaults, networkFaults, clientFaults} {
		n := &nemesis{run: r, draw: rand.New(rand.NewPCG(r.config.Seed, uint64(i)+1000))}
		all.Go(func() { n.work(ctx, faults) })
	}
	all.Wait()
}

func (n *nemesis) work(ctx context.Context, faults []fault) {
	var possible []fault
	for _, f := range faults {
		if (f.only == nil || f.only(&n.run.config)) && n.run.config.allows(f.name) {
			for range f.weight {
				possible = append(possible, f)
			}
		}
	}
	for ctx.Err() == nil {
		// Without some peace nothing would be held, and nothing could break.
		wait, cancel := context.WithTimeout(ctx, n.between(n.run.config.TTL/10, n.run.config.TTL*3/2))
		<-wait.Done()
		cancel()
		if ctx.Err() != nil || len(possible) == 0 {
			<-wait.Done()
			if len(possible) == 0 {
				return
			}
			continue
		}
		possible[n.draw.IntN(len(possible))].do(n)
	}
}

// between draws a time.
func (n *nemesis) between(from, to time.Duration) time.Duration {
	return from + time.Duration(n.draw.Int64N(int64(to-from)))
}

// while is for how long a fault lasts: mostly less than a lease, at times more.
func (n *nemesis) while() time.Duration {
	ttl := n.run.config.TTL
	if n.draw.IntN(3) == 0 {
		return n.between(ttl, 2*ttl)
	}
	return n.between(ttl/40, ttl)
}

// some draws at least one of them; most often as few as a quorum survives.
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

// last records a fault on targets that lasts until the function returned is called.
func (n *nemesis) last(name string, targets []string, breaks string) (over func()) {
	start := history.Now()
	return func() {
		n.run.log.Add(history.Record{Kind: history.Fault, At: start, Until: history.Now(), Name: name, Target: strings.Join(targets, " "), Breaks: breaks})
	}
}

func names(nodes []*Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}
