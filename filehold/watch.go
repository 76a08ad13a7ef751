//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"context"
	"math"
	"os"
	"slices"
	"syscall"
	"time"
)

// claims is what we know of a key on which we have a claim.
type claims struct {
	lease   time.Duration // end of our longest lease; 0: we do not hold the key
	waiting []string      // owner values of our waiters
	behind  []memberID    // members that our waiters wait behind
	timer   *time.Timer   // fires when the first claim ends that matters to us
}

func (mine *claims) disarm() {
	if mine.timer != nil {
		mine.timer.Stop()
	}
}

// follow takes in what a record says of our claims, after a job. Each waiter watches the member
// before it in the queue, and the first waiter watches all holders. So the next in line notices a
// death, and after several deaths the first living waiter does. If a waiter leaves the queue, a
// waiter comes in before others, or a second holder comes, the waiter behind it gets a message and
// looks again.
func (b *Backend) follow(j *job, s *step) {
	mine := b.mine[j.name]
	if mine == nil {
		mine = new(claims)
	}
	mine.disarm()
	// follow sees every grant first. So a waiter of ours that holds the key now has not been told
	// yet, unless this job is its own request.
	for _, h := range s.holders {
		if slices.Contains(mine.waiting, h.owner) &&
			!(j.kind == jobAcquire && j.claim.Owner == h.owner) {
			b.notices.deliver(s.key, h)
		}
	}
	due := mine.read(s)
	if due == math.MaxInt64 {
		delete(b.mine, j.name)
		return
	}
	b.mine[j.name] = mine
	for _, id := range mine.behind {
		b.watch(id)
	}
	// The look comes after the end. Before it, it would find the claim in force, and no other look
	// would follow.
	mine.timer = time.AfterFunc(due-s.now+time.Millisecond, func() { b.lanes.look(j.name) })
}

// read takes in what the record says of us. It returns the first end of a claim that matters to us:
// of ours, and of the holders that the first waiter, ours, waits behind. Without a claim of ours it
// returns the largest number.
func (mine *claims) read(s *step) (due time.Duration) {
	mine.lease, mine.waiting, mine.behind = 0, mine.waiting[:0], s.behind()
	due = math.MaxInt64
	for _, h := range s.holders {
		if h.member == s.me {
			mine.lease = max(mine.lease, h.until)
		}
		if h.member == s.me || len(s.queue) > 0 && s.queue[0].member == s.me {
			due = min(due, h.until)
		}
	}
	for _, w := range s.queue {
		if w.member == s.me {
			mine.waiting = append(mine.waiting, w.owner)
			due = min(due, w.until)
		}
	}
	return due
}

// watch is a member whose death concerns waiters of ours.
type watch struct {
	ctx  context.Context
	stop context.CancelFunc
	pipe *os.File // nil: we have to look now and then
}

// deathPoll is how often we look whether a member lives if its pipe does not tell us, or has told
// us already.
const deathPoll = 100 * time.Millisecond

// watch starts to watch a member. endWatches ends that later: a process often waits again soon
// behind the same member.
func (b *Backend) watch(id memberID) {
	if b.watches[id] != nil {
		return
	}
	w := new(watch)
	w.ctx, w.stop = context.WithCancel(b.ctx)
	b.watches[id] = w
	if pipesTell {
		path := b.dir.members + id.String()
		fd, err := openFile(path, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil { // else it is dead, or we have no descriptor left
			w.pipe = os.NewFile(uintptr(fd), path)
		}
	}
	b.helpers.Go(func() { b.attend(id, w) })
}

// attend waits for a member's death, and then looks at the keys for which our waiters wait behind
// it.
func (b *Backend) attend(id memberID, w *watch) {
	dead := func() bool {
		lives, _ := b.dir.living(id)
		return !lives
	}
	if w.pipe != nil {
		// This waits for an event of the pipe, and blocks no thread. The only event is that its
		// last reader is gone. The event comes once. If we have no descriptor then to look at the
		// pipe, we have to look again later.
		asked := false
		if conn, err := w.pipe.SyscallConn(); err == nil {
			conn.Read(func(uintptr) bool {
				over := asked || dead()
				asked = true
				return over
			})
		}
	}
	for w.ctx.Err() == nil && !dead() {
		select {
		case <-w.ctx.Done():
		case <-time.After(deathPoll):
		}
	}
	b.work.Lock()
	defer b.work.Unlock()
	if b.watches[id] != w {
		return
	}
	b.endWatch(id)
	for name, mine := range b.mine {
		if slices.Contains(mine.behind, id) {
			b.lanes.look(name)
		}
	}
}

func (b *Backend) endWatch(id memberID) {
	w := b.watches[id]
	delete(b.watches, id)
	w.stop()
	if w.pipe != nil {
		w.pipe.Close()
	}
}

// endWatches ends the watches that no waiter of ours needs.
func (b *Backend) endWatches() {
	b.work.Lock()
	defer b.work.Unlock()
	needed := make(map[memberID]bool)
	for _, mine := range b.mine {
		for _, id := range mine.behind {
			needed[id] = true
		}
	}
	for id := range b.watches {
		if !needed[id] {
			b.endWatch(id)
		}
	}
}
