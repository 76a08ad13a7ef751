package node

import "sync"

// Job blocks on a node, and so needs a goroutine of its own for a while.
type Job interface{ Run() }

// workers run jobs, each at once and on a goroutine of its own. They keep a few idle goroutines. A
// new goroutine for every call would cost more than all else that an acquisition does here, because
// a fresh stack has to grow on its way through a client library.
type workers struct {
	mu     sync.Mutex
	idle   []chan Job
	keep   int      // how many goroutines may be idle
	alive  inFlight // goroutines
	closed bool
}

// start runs j. It does not block.
func (w *workers) start(j Job) {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		// The last one to become idle: its stack is warm.
		jobs := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.mu.Unlock()
		jobs <- j // does not block: nobody else sends to a goroutine that is off the list
		return
	}
	w.mu.Unlock()
	w.alive.add(1)
	go w.work(j)
}

func (w *workers) work(j Job) {
	defer w.alive.end()
	var jobs chan Job
	for j != nil {
		j.Run()
		w.mu.Lock()
		if w.closed || len(w.idle) >= w.keep {
			w.mu.Unlock()
			return
		}
		if jobs == nil {
			jobs = make(chan Job, 1)
		}
		w.idle = append(w.idle, jobs)
		w.mu.Unlock()
		j = <-jobs // nil when the channel was closed
	}
}

// close ends the idle goroutines; the others end with their jobs. Jobs can still be started.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, jobs := range w.idle {
		close(jobs)
	}
	w.idle = nil
}
