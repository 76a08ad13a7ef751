//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"crypto/sha256"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"
)

// track is what we know of a key on which we have a claim. It belongs to the worker.
type track struct {
	until   time.Duration // when the last of our claims runs out
	lease   time.Duration // when our lease does; 0: we do not hold it
	waiting []waiting
	behind  []memberID  // members that our waiters wait behind, and that are watched
	timer   *time.Timer // fires when the lease of the holder runs out that the first waiter, ours, waits behind
}

type waiting struct {
	owner string
	hash  [sha256.Size]byte
}

func (tr *track) disarm() {
	if tr.timer != nil {
		tr.timer.Stop()
	}
}

// track takes in what the record says of our claims. Each waiter watches the one before it in the queue, and the first one the
// holder: so a death is noticed by who is next, and when several die, by the first who lives. If somebody leaves the queue
// or pushes in, the one behind gets a message and looks again.
func (t *turn) track(r *record) {
	c := t.core
	tr := c.mine[r.key]
	var until, lease time.Duration
	var now []waiting
	var behind []memberID
	if r.holder != nil && r.holder.member == c.member.id {
		lease = r.holder.until
		until = lease
	}
	ahead := r.holder
	for _, w := range r.queue {
		if w.member == c.member.id {
			until = max(until, w.until)
			now = append(now, tr.expect(c, r.key, w.owner))
			if ahead != nil && ahead.member != c.member.id && !slices.Contains(behind, ahead.member) {
				behind = append(behind, ahead.member)
			}
		}
		ahead = w
	}
	if tr == nil {
		if until == 0 {
			return
		}
		tr = new(track)
		c.mine[r.key] = tr
	}
	for _, w := range tr.waiting {
		if !slices.ContainsFunc(now, func(n waiting) bool { return n.owner == w.owner }) {
			c.notices.forget(w.hash)
		}
	}
	tr.waiting = now
	for _, id := range behind {
		c.watch(id, r.key)
	}
	for _, id := range tr.behind {
		if !slices.Contains(behind, id) {
			c.unwatch(id, r.key)
		}
	}
	tr.behind = behind
	tr.until, tr.lease = until, lease
	if until == 0 {
		tr.disarm()
		delete(c.mine, r.key)
		return
	}
	if r.holder == nil || len(r.queue) == 0 || r.queue[0].member != c.member.id {
		tr.disarm()
		return
	}
	// Not before: who looks too early finds the lease in force, and is not told again.
	d := r.holder.until - t.now + time.Millisecond
	if tr.timer == nil {
		key := r.key
		tr.timer = time.AfterFunc(d, func() { c.post(func(t *turn) { t.looks = append(t.looks, key) }) })
	} else {
		tr.timer.Reset(d)
	}
}

// expect has a grant of the claim by another member delivered. It comes before others can see the claim in the queue, as we
// have the mutex.
func (tr *track) expect(c *core, key, owner string) waiting {
	if tr != nil {
		for _, w := range tr.waiting {
			if w.owner == owner {
				return w
			}
		}
	}
	w := waiting{owner, claimHash(key, owner)}
	c.notices.expect(w.hash, claimName{key, owner})
	return w
}

// watch is a member whose death concerns waiters of ours. Where the system reports the end of a pipe, a goroutine
// reads from the one that the member keeps open, which blocks no thread. Elsewhere a timer looks.
type watch struct {
	keys  map[string]struct{}
	pipe  *os.File
	timer *time.Timer
	tries int
}

// deathDelays are the times between looks after the pipe has ended. A process that dies closes the pipe and unlocks its
// file in no certain order; and a child may have inherited only one of the two.
var deathDelays = []time.Duration{
	50 * time.Microsecond, 200 * time.Microsecond, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond,
	100 * time.Millisecond, 300 * time.Millisecond, time.Second,
}

func (c *core) watch(id memberID, key string) {
	w := c.watches[id]
	if w == nil {
		w = &watch{keys: make(map[string]struct{})}
		c.watches[id] = w
		c.beginWatch(id, w)
	}
	w.keys[key] = struct{}{}
}

// unwatch keeps the watch for a while: who waits for a key often waits again soon, behind the same.
func (c *core) unwatch(id memberID, key string) {
	if w := c.watches[id]; w != nil {
		delete(w.keys, key)
	}
}

func (c *core) beginWatch(id memberID, w *watch) {
	if deathPoll > 0 {
		c.watchLater(id, w, deathPoll)
		return
	}
	fd, err := openFile(c.dir.members+id.String()+aliveSuffix, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		// Gone, if it is not that we have too many files; then the heartbeats have to do.
		c.watchLater(id, w, deathDelays[0])
		return
	}
	w.pipe = os.NewFile(uintptr(fd), aliveSuffix)
	c.readers.Go(func() {
		var b [1]byte
		for {
			n, err := w.pipe.Read(b[:])
			if err == nil && n > 0 {
				continue // nobody has anything to say here
			}
			break
		}
		// After endWatch the watch is another, or none, and this does nothing.
		c.post(func(t *turn) { t.checkWatch(id, w) })
	})
}

func (c *core) watchLater(id memberID, w *watch, d time.Duration) {
	w.timer = time.AfterFunc(d, func() { c.post(func(t *turn) { t.checkWatch(id, w) }) })
}

// checkWatch looks whether the member lives, after there was reason to think that it does not.
func (t *turn) checkWatch(id memberID, w *watch) {
	if t.watches[id] != w {
		return
	}
	delete(t.known, id) // it may have died since it was looked at
	if !t.lives(id) {
		for key := range w.keys {
			t.looks = append(t.looks, key)
		}
		t.endWatch(id)
		return
	}
	switch {
	case deathPoll > 0:
		t.watchLater(id, w, deathPoll)
	case w.tries < len(deathDelays):
		d := deathDelays[w.tries]
		t.watchLater(id, w, d+rand.N(d))
		w.tries++
	default:
		t.endWatch(id) // begun again by the next heartbeat
	}
}

func (c *core) endWatch(id memberID) {
	w := c.watches[id]
	if w == nil {
		return
	}
	delete(c.watches, id)
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.pipe != nil {
		w.pipe.Close()
	}
}

// dropWatches ends those that no key needs any more.
func (c *core) dropWatches() {
	for id, w := range c.watches {
		if len(w.keys) == 0 {
			c.endWatch(id)
		}
	}
}
