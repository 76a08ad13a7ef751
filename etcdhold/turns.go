package etcdhold

import (
	"context"
	"sync"
)

// turns has the calls for one key take effect one after the other, in the order in which they were
// made, even if a caller does not wait for the end.
type turns struct {
	mu    sync.Mutex
	lines map[string][]*turn // those that wait; a key is there while one is under way
	shut  bool               // nothing is run any more
	ended sync.WaitGroup
}

// turn is one call.
type turn struct {
	run     func()
	done    chan struct{} // closed when it has run, or is dropped
	started bool
}

// take has run called in its turn.
func (t *turns) take(key string, run func()) *turn {
	mine := &turn{run: run, done: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut {
		mine.started = true
		close(mine.done)
		return mine
	}
	if t.lines == nil {
		t.lines = make(map[string][]*turn)
	}
	line, busy := t.lines[key]
	if busy {
		t.lines[key] = append(line, mine)
		return mine
	}
	t.lines[key] = nil
	mine.started = true
	t.ended.Add(1)
	go t.serve(key, mine)
	return mine
}

// close waits for what is under way or in line. Nothing is run after it.
func (t *turns) close() {
	t.mu.Lock()
	t.shut = true
	t.mu.Unlock()
	t.ended.Wait()
}

// serve runs the turn and those that come after it.
func (t *turns) serve(key string, next *turn) {
	defer t.ended.Done()
	for next != nil {
		next.run()
		close(next.done)
		next = t.next(key)
	}
}

func (t *turns) next(key string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.lines[key]
	if len(line) == 0 {
		delete(t.lines, key)
		return nil
	}
	t.lines[key] = line[1:]
	line[0].started = true
	return line[0]
}

// drop takes the turn out of its line, if it has not begun.
func (t *turns) drop(key string, mine *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.started {
		return false
	}
	for i, other := range t.lines[key] {
		if other == mine {
			t.lines[key] = append(t.lines[key][:i:i], t.lines[key][i+1:]...)
			break
		}
	}
	return true
}

// do runs the call in its turn, and waits until it has run or ctx ends. begun says whether the call
// had begun when ctx ended; if it had, it goes on. If must is true, it goes on in any case.
func (t *turns) do(ctx context.Context, key string, must bool, run func()) (begun bool, err error) {
	mine := t.take(key, run)
	select {
	case <-mine.done:
		return true, nil
	case <-ctx.Done():
	}
	if !must && t.drop(key, mine) {
		return false, ctx.Err()
	}
	return true, ctx.Err()
}
