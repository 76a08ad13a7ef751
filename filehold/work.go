//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// chunk is how many keys are looked at before the mutex is given up for others. It keeps a turn to about a
	// millisecond.
	chunk = 64

	// courtesy is how long others get for taking the mutex after a long turn.
	courtesy = 50 * time.Microsecond
)

// tickAfter is when to look for what nobody else looks for. Random, so that many processes do not do so at once.
func tickAfter() time.Duration { return 30*time.Second + rand.N(30*time.Second) }

// work is the worker.
func (c *core) work() {
	defer close(c.ended)
	long := false
	for {
		select {
		case <-c.stop:
			c.finish()
			return
		default:
		}
		if c.take(); len(c.taken) == 0 && c.idle() {
			long = false
			select {
			case <-c.kick:
			case <-c.tick.C:
				c.turnTick()
				c.tick.Reset(tickAfter())
			case <-c.stop:
			}
			continue
		}
		if long {
			pause(courtesy)
		}
		need := c.serve()
		long = len(c.taken) > 0 || !c.idle()
		if need > 0 {
			if err := c.raiseCeiling(need, c.stop); err != nil {
				c.turn.unraised = c.failed(err)
			}
		}
	}
}

// idle reports whether there is nothing to do in the background.
func (c *core) idle() bool { return len(c.looks) == 0 && !c.sweep.due() }

// take adds jobs that were submitted to c.taken.
func (c *core) take() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = 0
	if len(c.taken) == 0 {
		// The slices change places, so that neither has to be made again.
		c.taken, c.jobs = c.jobs, c.taken[:0]
		return
	}
	c.taken = append(c.taken, c.jobs...)
	clear(c.jobs)
	c.jobs = c.jobs[:0]
}

// serve takes the mutex and does a chunk of what there is to do. If the ceiling has to be raised for
// that, it returns to what.
func (c *core) serve() (need uint64) {
	t := &c.turn
	err := c.gone
	if err == nil {
		if err = c.dir.mutex.lock(c.stop); errors.Is(err, errStopped) {
			return 0 // finish answers the jobs
		}
		if err == nil {
			if err = c.inPlace(); err != nil {
				c.dir.mutex.unlock()
				if errors.Is(err, errGone) {
					c.gone = errGone
				}
			}
		}
	}
	t.begin()
	left := chunk
	for len(c.taken) > 0 && left > 0 {
		j := c.taken[0]
		if !j.begin() {
			c.taken = c.taken[1:]
			continue
		}
		if err != nil {
			c.refuse(j, err)
		} else if again := c.do(t, j, &left, &need); again {
			break
		}
		c.served = append(c.served, j)
		c.taken = c.taken[1:]
	}
	if err != nil {
		c.looks, c.sweep = nil, sweep{}
	} else {
		if need == 0 {
			t.background(&left, &need)
		}
		for _, id := range t.died {
			c.dir.markDead(id)
			c.sweep.wanted = true
		}
		c.dir.mutex.unlock()
		if !c.sweep.due() {
			c.sweep.rest()
		}
	}
	if need == 0 {
		t.unraised = nil
	}
	c.tell(t)
	for i, j := range c.served {
		close(j.done)
		c.served[i] = nil
	}
	c.served = c.served[:0]
	return need
}

// do does a job, or as much of it as there is time left. It reports whether it has to be taken up again: because there is more of it, or
// because the ceiling has to be raised first.
func (c *core) do(t *turn, j *job, left *int, need *uint64) (again bool) {
	var ceiling bool
	switch j.kind {
	case jobAcquire:
		*left--
		j.result, j.err = t.acquire(&j.claim)
		*need, ceiling = isCeiling(j.err)
	case jobRelease:
		*left--
		j.result, j.err = t.release(&j.claim)
		*need, ceiling = isCeiling(j.err)
	case jobInternal:
		*left--
		j.run(t)
	case jobRenew:
		for j.next < len(j.claims) {
			if *left <= 0 {
				return true
			}
			*left--
			claim, result := &j.claims[j.next], &j.results[j.next]
			if result.Err = c.validate(claim); result.Err == nil {
				var err error
				*result, err = t.renew(claim)
				if *need, ceiling = isCeiling(err); ceiling {
					*result = driver.Result{}
					return true
				}
				if err != nil {
					*result = driver.Result{Err: c.failed(err)}
				}
			}
			j.next++
		}
		return false
	}
	if ceiling {
		j.err = nil
		return true
	}
	if j.err != nil {
		j.result, j.err = driver.Result{}, c.failed(j.err)
	}
	return false
}

// refuse answers a job when the directory cannot be used.
func (c *core) refuse(j *job, err error) {
	switch {
	case j.kind == jobInternal:
	case errors.Is(err, errGone) && j.kind == jobRenew:
		// Whoever opens the directory now, or makes it anew, finds the keys free.
		for i := range j.results {
			j.results[i] = driver.Result{State: driver.Lost}
		}
	case errors.Is(err, errGone) && j.kind == jobRelease:
		j.result = driver.Result{State: driver.Lost}
	case errors.Is(err, errGone):
		j.err = c.errGone()
	case j.kind == jobRenew && j.next > 0:
		for i := j.next; i < len(j.results); i++ {
			j.results[i].Err = c.failed(err)
		}
	default:
		j.err = c.failed(err)
	}
}

// background does what can wait.
func (t *turn) background(left *int, need *uint64) {
	for len(t.looks) > 0 && *left > 0 {
		*left--
		// An error means that the key cannot be read, or the next holder gets no token. Those who ask for it are told.
		if n, ceiling := isCeiling(t.look(t.looks[0])); ceiling {
			*need = n
			return
		}
		t.looks = t.looks[1:]
	}
	t.sweepSome(left, need)
}

// tell sends what a turn has brought about.
func (c *core) tell(t *turn) {
	for i := range t.messages {
		c.dir.send(&t.messages[i])
	}
	for _, n := range t.notices {
		c.notices.deliver(n)
	}
}

// turnTick begins what is due every now and then.
func (c *core) turnTick() {
	c.dropWatches()
	c.post(func(t *turn) {
		// Claims that ran out and that nobody has asked about since.
		for key, tr := range t.mine {
			if tr.until <= t.now {
				t.looks = append(t.looks, key)
			}
		}
		t.callRoll()
		t.raiseAhead()
		t.counts = false // the counter may be another now
	})
}
