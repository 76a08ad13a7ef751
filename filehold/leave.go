//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// leavePatience is how long Close waits for the directory's mutex.
const leavePatience = time.Second

// finish is the last that the worker does.
func (c *core) finish() {
	c.take()
	var releases []*driver.Claim
	for _, j := range c.taken {
		if !j.begin() {
			continue
		}
		if j.progress.Load() == jobLeft {
			releases = append(releases, &j.claim)
		}
		c.refuse(j, c.errClosed())
		close(j.done)
	}
	c.taken = nil
	c.tick.Stop()

	until, clean := c.withdraw(releases)
	c.notices.stop()
	for id := range c.watches {
		c.endWatch(id)
	}
	for _, tr := range c.mine {
		tr.disarm()
	}
	c.sweep.end()
	c.member.wake.Close() // ends readMessages
	c.readers.Wait()
	c.dir.close()
	c.member.stay(until, clean)
}

// withdraw makes releases that nobody waits for any more, and takes our waiters out of their queues. It returns the end of the last lease that we have, or 0, and whether the
// directory says nothing of us any more.
func (c *core) withdraw(releases []*driver.Claim) (until time.Duration, clean bool) {
	t := &c.turn
	t.unraised = errClosed // no grant of ours waits for the disk now; those who wait ask for their key again soon
	for _, tr := range c.mine {
		until = max(until, tr.lease)
	}
	if c.gone != nil {
		return 0, false
	}
	patience := make(chan struct{})
	timer := time.AfterFunc(leavePatience, func() { close(patience) })
	defer timer.Stop()
	keys := make([]string, 0, len(c.mine))
	for key := range c.mine {
		keys = append(keys, key)
	}
	var held time.Duration
	for first := true; first || len(keys) > 0; first = false {
		if c.dir.mutex.lock(patience) != nil {
			return until, false
		}
		if c.inPlace() != nil {
			c.dir.mutex.unlock()
			return 0, false
		}
		t.begin()
		for _, claim := range releases {
			t.release(claim) // if it fails, the lease runs out
		}
		releases = nil
		n := min(len(keys), chunk)
		for _, key := range keys[:n] {
			end, err := t.forget(key)
			if err != nil {
				c.dir.mutex.unlock()
				return until, false
			}
			if end > t.now {
				held = max(held, end)
			}
		}
		keys = keys[n:]
		for _, id := range t.died {
			c.dir.markDead(id)
		}
		if len(keys) == 0 && held == 0 {
			// Under the mutex, so that nobody takes us for one who died.
			c.member.remove()
		}
		c.dir.mutex.unlock()
		c.tell(t)
	}
	return held, held == 0
}

// stay ends the membership, but not before until: the holder of a lock relies on its lease, and does not know that the
// Backend was closed. Until then the open files keep the member alive, unless the process ends.
func (m *member) stay(until time.Duration, removed bool) {
	if removed || until <= clock.SinceBoot() {
		m.leave()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() {
		if rest := until - clock.SinceBoot(); rest > 0 {
			timer.Reset(rest) // the timer's clock is not that of leases
			return
		}
		m.leave()
	})
	timer.Reset(until - clock.SinceBoot())
}
