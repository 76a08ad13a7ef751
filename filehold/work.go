//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// serve does the jobs of a lane.
func (b *Backend) serve(l *lane) {
	for j := b.lanes.next(l); j != nil; j = b.lanes.next(l) {
		b.work.Lock()
		k, err := keyFile{fd: -1}, b.gone
		if err == nil {
			k, err = b.dir.lockKey(l.name, j.kind == jobAcquire, b.member.temporary(),
				func(fd int) error { return b.await(l, fd) })
		}
		b.perform(j, &k, err)
		b.work.Unlock()
	}
}

// await waits for the file lock of a key, without the mutex. It waits in the operating system,
// which keeps a queue. If a hundred processes tried again and again instead, they would take the
// processor from the one that has the lock. Nothing can end such a wait, so Close leaves it behind.
func (b *Backend) await(l *lane, fd int) error {
	st, err := statOpen(fd)
	if err != nil {
		return err
	}
	file := idOf(&st)
	b.lanes.keep(l, &file)
	b.work.Unlock()
	err = interruptible(func() error { return sysFlock(fd, syscall.LOCK_EX) })
	b.lanes.keep(l, nil)
	b.work.Lock()
	return err
}

// perform does a job on a locked key and unlocks it. err says why the key could not be locked.
func (b *Backend) perform(j *job, k *keyFile, err error) {
	defer k.close()
	locked := err == nil && k.fd >= 0
	s := step{me: b.member.id, now: clock.SinceBoot(), lives: b.lives, draw: b.tokens.draw,
		record: &k.record}
	var r driver.Result
	begun := b.lanes.begin(j)
	if begun && err == nil {
		r, err = b.change(j, k, &s)
	}
	if locked && k.size == 0 && (err != nil || !begun) {
		removeFile(k.path) // new or emptied: a key that nobody holds or waits for has no file
	}
	k.close()
	if !begun {
		return
	}
	// Only a check afterwards covers the whole change.
	gone := b.inPlace()
	switch {
	case gone != nil:
		r = b.refuse(j.kind, gone)
	case err != nil:
		r = driver.Result{Err: b.dir.wrap(err)}
	default:
		b.follow(j, &s)
		for _, id := range s.concerned() {
			b.dir.send(id, j.name)
		}
	}
	b.lanes.finish(j, r)
}

// change applies a job to the record of a key.
func (b *Backend) change(j *job, k *keyFile, s *step) (r driver.Result, err error) {
	err = k.load(&b.buf)
	if errors.Is(err, errDamaged) && b.mine[j.name] == nil && b.dir.alone(b.member.id) {
		err = k.empty() // no living member can hold what the record said
	}
	if err != nil {
		return r, err
	}
	s.prune()
	switch j.kind {
	case jobAcquire:
		s.record.key = j.claim.Key
		r, err = s.acquire(&j.claim)
	case jobRenew:
		r, err = s.renew(&j.claim)
	case jobRelease:
		r = s.release(&j.claim)
	case jobLook:
		s.tidy()
	case jobForget:
		s.forget()
	}
	if err == nil && (s.changed || k.record.free()) {
		err = k.store()
	}
	return r, err
}

// inPlace fails if another directory is now where ours was. Then a change in ours means nothing.
func (b *Backend) inPlace() error {
	if b.gone != nil {
		return b.gone
	}
	err := b.member.inPlace()
	if errors.Is(err, errGone) {
		b.gone = err
	}
	return err
}

// refuse returns the answer to a job in a directory that other processes do not find, or may not
// find, any more.
func (b *Backend) refuse(kind jobKind, err error) driver.Result {
	switch {
	case !errors.Is(err, errGone):
		return driver.Result{Err: &driver.Error{Node: b.dir.path, Maybe: true, Err: err}}
	case kind == jobRenew || kind == jobRelease:
		// A process that opens the directory now finds the keys free.
		return driver.Result{State: driver.Lost}
	default:
		return driver.Result{Err: b.dir.fail("%w", err)}
	}
}

// lives reports whether a member lives.
func (b *Backend) lives(id memberID) bool {
	if id == b.member.id {
		return true
	}
	lives, left := b.dir.living(id)
	if left {
		select {
		case b.found <- struct{}{}:
		default: // keepHouse knows of another
		}
	}
	return lives
}
