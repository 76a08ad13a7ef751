//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"context"
	"slices"
	"syscall"
	"time"
)

// sweep frees the keys of members that are marked as dead, and then removes what is left of them. Keys that somebody waits for
// are freed sooner, by who waits; the others hold nobody up, but would be there for ever.
type sweep struct {
	wanted bool     // somebody was marked as dead
	names  []string // files of keys that are still to be looked at
	dead   []memberID
	locks  []int // on the files of the dead: nobody else sweeps for them
	idle   []chan struct{}
}

// sweepAtOnce is for how many dead members one sweep is.
const sweepAtOnce = 64

func (s *sweep) due() bool { return s.wanted || len(s.dead) > 0 }

func (s *sweep) end() {
	for _, fd := range s.locks {
		closeFile(fd)
	}
	s.rest()
	*s = sweep{}
}

// rest tells those who wait for the end of the sweep.
func (s *sweep) rest() {
	for _, idle := range s.idle {
		close(idle)
	}
	s.idle = nil
}

// callRoll looks at every member. The mutex is held.
func (t *turn) callRoll() {
	r, err := t.readRoll()
	if err != nil {
		return
	}
	for _, id := range r.members {
		t.lives(id) // notes that it does not
	}
	for _, name := range r.waste {
		// Left by a process that was killed on its way in or out: otherwise it would have the mutex.
		removeFile(t.members + name)
	}
	if len(r.dead) > 0 {
		t.sweep.wanted = true
	}
}

// firstSweep cleans up after those who died before we came, and waits for that until ctx ends.
func (c *core) firstSweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	idle := make(chan struct{})
	c.post(func(t *turn) {
		t.callRoll()
		t.sweep.idle = append(t.sweep.idle, idle)
	})
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// sweepSome goes on with the sweep.
func (t *turn) sweepSome(left *int, need *uint64) {
	s := &t.sweep
	if len(s.dead) == 0 {
		if !s.wanted {
			return
		}
		s.wanted = false
		t.beginSweep()
	}
	for len(s.names) > 0 && *left > 0 {
		*left--
		if n, ceiling := isCeiling(t.lookAt(s.names[0])); ceiling {
			*need = n
			return
		}
		s.names = s.names[1:]
	}
	if len(s.names) == 0 {
		for i, id := range s.dead {
			t.bury(id)
			closeFile(s.locks[i])
		}
		s.dead, s.locks = nil, nil
	}
}

func (t *turn) beginSweep() {
	s := &t.sweep
	r, err := t.readRoll()
	if err != nil {
		return
	}
	for _, id := range r.dead {
		if len(s.dead) == sweepAtOnce {
			s.wanted = true
			break
		}
		fd, err := openFile(t.members+id.String()+deadSuffix, syscall.O_RDONLY, 0)
		if err != nil {
			continue
		}
		if tryFlock(fd, syscall.LOCK_EX) != nil {
			closeFile(fd) // another process sweeps; if it dies, the next roll call finds the file again
			continue
		}
		s.dead = append(s.dead, id)
		s.locks = append(s.locks, fd)
	}
	if len(s.dead) == 0 {
		return
	}
	// Listed after they were marked as dead, and so after their last write.
	names, err := namesIn(t.keys)
	if err != nil {
		s.end()
		return
	}
	s.names = slices.DeleteFunc(names, func(name string) bool {
		if isTemporary(name) {
			removeFile(t.keys + name) // nobody is making it: we have the mutex
		}
		return !isKeyName(name)
	})
}
