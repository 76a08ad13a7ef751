package simulate

import (
	"time"
)

// mostDeaths is how many processes of a history end without Close, at most.
const mostDeaths = 3

// die ends the process at once, like a program that is killed: nothing that it sends from now on
// arrives, and none of its goroutines goes on. What it holds stays until its TTL is over, and
// nobody else has it before. Often the process is started again, as another one.
//
// Its Locker is closed, because its goroutines would stay otherwise. The backend does not hear of
// that.
func (p *process) die(again bool) {
	h := p.h
	h.ring.note(evDeath, p.id, 0, 0, 0, 0)
	if again {
		next := newProcess(h, h.population())
		p.next.Store(next)
		h.add(next)
	}
	p.dead.Store(true)
	for _, w := range p.wires {
		w.kill()
	}
	p.end()
	h.ends.raise(h.now() + h.closing())
	for _, k := range h.stored() {
		k.left.raise(h.now() + lastWords + h.longest() + 2*h.presence)
	}
	p.mu.Lock()
	last := p.life
	p.closing.Add(1)
	p.mu.Unlock()
	go func() {
		defer p.closing.Done()
		p.close(last)
	}()
}

// lastWords is how long after the death of a process what it sent before may still arrive.
const lastWords = 50 * time.Millisecond

// population returns how many processes there were so far.
func (h *history) population() int { return len(h.processes()) }

// processes returns all that there were so far.
func (h *history) processes() []*process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.procs[:len(h.procs):len(h.procs)]
}

func (h *history) add(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.procs = append(h.procs, p)
}

// alive returns a process that runs; a new one if there is none.
func (h *history) alive() *process {
	for _, p := range h.processes() {
		if !p.dead.Load() {
			return p
		}
	}
	p := newProcess(h, h.population())
	for _, w := range p.wires {
		w.mend()
	}
	h.add(p)
	return p
}
