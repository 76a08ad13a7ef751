//go:build unix

package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/itest/history"
)

// overtaken is the name of the only fault in runs with guarded stores.
const overtaken = "pause past the lease"

// overtaking stops holders between their read and their write until another holder has come, as
// often as needed. What they write then comes too late. One loop decides everything.
//
// A client says that it has read, with its token and whether every guard has accepted it. It writes
// only when it is ordered to. Then it says that it has written, with the same words. The clients of
// one key are never all stopped, so there is always one to overtake the others.
type overtaking struct {
	run    *run
	draw   *rand.Rand
	said   chan word
	paused map[*client]pause
	left   map[*client]bool // those that have not ended
	ending bool
	late   int // how many were overtaken so far
}

// word is what a client says. The last one is of a client that has ended by itself.
type word struct {
	client *client
	last   bool
	name   string
	token  uint64
	whole  bool
}

// pause is the pause of one client.
type pause struct {
	token   uint64
	since   int64
	written bool // it ends when the next holder has written; otherwise when that one has read
}

// overtake keeps the clients of guarded stores at work, and has them overtaken, until the time is
// over and that has happened often enough. It returns when all have ended.
func (r *run) overtake(ctx context.Context) error {
	o := &overtaking{run: r, said: make(chan word), paused: make(map[*client]pause),
		left: make(map[*client]bool), draw: rand.New(rand.NewPCG(r.config.Seed, 1000))}
	r.log.Add(history.Record{Kind: history.Plan, Name: overtaken, Target: "clients", Count: 1})
	done := make(chan struct{})
	defer close(done)
	for _, c := range r.clients {
		o.left[c] = true
		go o.listen(c, done)
	}
	round := time.NewTicker(r.config.Duration)
	defer round.Stop()
	var late <-chan time.Time
	enough := r.config.Stale + r.config.Stale/10 // some may not be answered in time
	for rounds := 0; len(o.left) > 0; {
		select {
		case w := <-o.said:
			if err := o.hear(w); err != nil {
				r.violated("crash", "%v", err)
				return nil
			}
		case <-round.C:
			if rounds++; !o.ending && (o.late >= enough || rounds == mostRounds) {
				r.mark(history.Calm)
				o.end()
				late = time.After(patience)
			}
		case <-late:
			for c := range o.left {
				r.violated("leaks", "%s does not end within %v", c.name, patience)
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// listen passes on what a client says, until it ends.
func (o *overtaking) listen(c *client, done <-chan struct{}) {
	for {
		line, running := <-c.said
		w := word{client: c, last: !running}
		fmt.Sscan(line, &w.name, &w.token, &w.whole)
		select {
		case o.said <- w:
		case <-done:
			return
		}
		if !running || w.name == "closed" {
			return
		}
	}
}

// hear acts on what a client says.
func (o *overtaking) hear(w word) error {
	switch {
	case w.last:
		return w.client.ended()
	case w.name == "closed":
		delete(o.left, w.client)
	case o.ending:
	case w.name == "read":
		// If a guard has not accepted it, nobody was overtaken there.
		if w.whole {
			o.pass(w, false)
		}
		if w.whole && o.spared(w.client) && o.draw.IntN(5) < 3 {
			o.paused[w.client] = pause{w.token, history.Now(), o.draw.IntN(2) == 0}
			w.client.process.freeze()
		} else {
			w.client.tell("on")
		}
	case w.name == "wrote":
		if w.whole {
			o.pass(w, true)
		}
	default:
		return fmt.Errorf("%s says %q", w.client.name, w.name)
	}
	return nil
}

// pass lets clients go on that were overtaken by a holder that has read, or has also written.
func (o *overtaking) pass(w word, written bool) {
	for c, p := range o.paused {
		if c.key == w.client.key && p.token < w.token && (written || !p.written) {
			o.late++
			o.over(c)
			c.tell("on")
			c.process.thaw()
		}
	}
}

// over records a pause, and forgets it.
func (o *overtaking) over(c *client) {
	o.run.log.Add(history.Record{Kind: history.Fault, At: o.paused[c].since, Until: history.Now(),
		Name: overtaken, Drawn: overtaken, Target: c.slot, Key: c.key})
	delete(o.paused, c)
}

// spared reports whether another client of the same key is not paused.
func (o *overtaking) spared(stopped *client) bool {
	for c := range o.left {
		if _, paused := o.paused[c]; c != stopped && c.key == stopped.key && !paused {
			return true
		}
	}
	return false
}

// end orders every client to end, once. A client that waits for the order to go on takes it for
// that.
func (o *overtaking) end() {
	o.ending = true
	for c := range o.left {
		c.order()
		if _, paused := o.paused[c]; paused {
			o.over(c)
			c.process.thaw()
		}
	}
}
