package quorum

import "sync"

// job is something that blocks on a node and therefore needs a goroutine of its own for a while.
type job interface{ run() }

// crew runs jobs, each at once on its own goroutine. It keeps a few idle goroutines: starting one
// for every call to every node costs more than all else that an acquisition does here, because
// a fresh stack has to grow on the way through a client library.
type crew struct {
	mu     sync.Mutex
	idle   []chan job
	keep   int    // how many goroutines may be idle
	alive  flight // goroutines
	closed bool
}

// start runs j. It does not block.
func (c *crew) start(j job) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		// The last one to become idle: the others get the chance to stay idle, and its stack is warm.
		hand := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		hand <- j // has room: its goroutine is about to receive, and was taken off the list
		return
	}
	c.mu.Unlock()
	c.alive.add(1)
	go c.work(j)
}

func (c *crew) work(j job) {
	defer c.alive.end()
	var hand chan job
	for j != nil {
		j.run()
		c.mu.Lock()
		if c.closed || len(c.idle) >= c.keep {
			c.mu.Unlock()
			return
		}
		if hand == nil {
			hand = make(chan job, 1)
		}
		c.idle = append(c.idle, hand)
		c.mu.Unlock()
		j = <-hand // nil when the channel was closed
	}
}

// close ends the idle goroutines; the others end with their jobs. Jobs can still be started.
func (c *crew) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, hand := range c.idle {
		close(hand)
	}
	c.idle = nil
}
