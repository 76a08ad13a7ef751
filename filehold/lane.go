//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// lane holds the jobs of one key, in the order of the calls. A goroutine does them one by one, and
// ends with the last. So a caller can leave when its context ends, whatever the disk does, and its
// Acquire cannot take effect after the Release that follows.
type lane struct {
	name string
	jobs []*job

	kept  *fileID       // the key's file, while another process has its lock
	since time.Duration // on the clock of leases
}

// lanes queue the jobs of all keys. They know nothing of what a job does. They are safe for
// concurrent use.
type lanes struct {
	dir   *directory  // for errors
	serve func(*lane) // does the jobs of a lane, until next returns none

	mu      sync.Mutex // its owner never waits for the disk
	byName  map[string]*lane
	closing bool // callers are refused
	closed  bool // every job is refused
}

var errClosed = errors.New("filehold: backend closed")

// errKept: another process, or another Backend, has the file lock of a key.
var errKept = errors.New("its lock is not free")

// longWait is how long a renewal of several keys waits for one whose file lock another process has.
const longWait = 20 * time.Millisecond

// do queues jobs and waits for their results. A job that has not begun when ctx ends is dropped,
// unless it is a release, because other waiters wait for that. do fails if the Backend is closed.
func (s *lanes) do(ctx context.Context, jobs ...*job) error {
	if len(jobs) == 0 {
		return nil
	}
	all := &batch{len(jobs), make(chan struct{})}
	s.mu.Lock()
	if s.closed || s.closing && jobs[0].called() {
		s.mu.Unlock()
		return s.dir.fail("%w", errClosed)
	}
	for _, j := range jobs {
		j.batch = all
		s.add(j)
	}
	s.mu.Unlock()
	var long <-chan time.Time
	if jobs[0].kind == jobRenew && len(jobs) > 1 {
		ticker := time.NewTicker(longWait)
		defer ticker.Stop()
		long = ticker.C
	}
	for {
		select {
		case <-all.done:
			return nil
		case <-ctx.Done():
			s.giveUp(jobs, ctx.Err(), false)
		case <-long:
			// The other leases would run out while their renewals wait for these.
			s.giveUp(jobs, errKept, true)
		}
	}
}

func (s *lanes) add(j *job) {
	l := s.byName[j.name]
	if l == nil {
		l = &lane{name: j.name}
		s.byName[j.name] = l
		go s.serve(l)
	}
	// Without this, a caller that retries while the disk hangs fills the memory.
	l.jobs = append(slices.DeleteFunc(l.jobs, (*job).over), j)
}

// look queues a job that puts a key in order, and does not wait for it.
func (s *lanes) look(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.add(&job{kind: jobLook, name: name, answered: true})
	}
}

// giveUp answers jobs that are not done. With onlyKept, it answers only those whose key another
// process has kept locked for long.
func (s *lanes) giveUp(jobs []*job, err error, onlyKept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		l := s.byName[j.name]
		kept := l != nil && l.kept != nil && clock.SinceBoot()-l.since >= longWait
		if j.over() || onlyKept && !kept {
			continue
		}
		maybe := j.state == jobRunning || j.kind == jobRelease
		if !maybe {
			j.state = jobDone
		}
		j.answer(driver.Result{Err: &driver.Error{Node: s.dir.path, Maybe: maybe,
			Err: l.explain(j.claim.Key, err)}})
	}
}

// explain adds to err which process keeps the key locked, if one does.
func (l *lane) explain(key string, err error) error {
	if l == nil || l.kept == nil {
		return err
	}
	who := "another process"
	if pid := flockHolder(*l.kept); pid > 0 {
		who = fmt.Sprint("process ", pid)
	}
	return fmt.Errorf("key %q is kept locked by %s, which is busy or stopped: %w", key, who, err)
}

// keep notes which file the lane waits for, or nil when it waits no more.
func (s *lanes) keep(l *lane, file *fileID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.kept, l.since = file, clock.SinceBoot()
}

// next returns the lane's next job. Without one, the lane ends.
func (s *lanes) next(l *lane) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.jobs = slices.DeleteFunc(l.jobs, (*job).over); len(l.jobs) == 0 {
		delete(s.byName, l.name)
		return nil
	}
	return l.jobs[0]
}

// begin marks a job as running, unless it was dropped.
func (s *lanes) begin(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.over() {
		return false
	}
	j.state = jobRunning
	return true
}

func (s *lanes) finish(j *job, r driver.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.state = jobDone
	j.answer(r)
}

// names returns the lanes, by the names of their keys' files.
func (s *lanes) names() map[string]*lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.byName)
}

// close refuses all callers from now on, also those that wait. If all is true, it refuses every
// job. Otherwise a release whose caller has given up still frees the key for others.
func (s *lanes) close(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing, s.closed = true, all
	for _, l := range s.byName {
		for _, j := range l.jobs {
			if j.state == jobWaiting && (all || j.called() && !j.answered) {
				j.state = jobDone
				j.answer(driver.Result{Err: s.dir.fail("%w", errClosed)})
			}
		}
	}
}
