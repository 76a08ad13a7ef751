package deadlock

import "iter"

// reduce leaves those processes stuck (open > 0) that wait whatever the others do. It lets
// processes go on that wait for nothing, counts what they hold as released, and repeats this until
// no process can go on. The processes that are left are deadlocked, or wait for one that is.
func (g *Graph) reduce() {
	var goOn []*process
	for _, p := range g.processes {
		p.open = len(p.wants)
		for _, w := range p.wants {
			g.resolve(w)
			for _, r := range w.any {
				r.wanted = append(r.wanted, w)
				r.busy = len(r.holders)
			}
		}
	}
	for _, p := range g.processes {
		for _, w := range p.wants {
			if w.free() {
				w.granted = true
				p.open--
			}
		}
		if p.open == 0 {
			goOn = append(goOn, p)
		}
	}
	for len(goOn) > 0 {
		p := goOn[len(goOn)-1]
		goOn = goOn[:len(goOn)-1]
		for _, r := range p.holds {
			if r.busy--; r.busy == 0 {
				goOn = append(goOn, r.release()...)
			}
		}
	}
}

// resolve finds the slots of a semaphore. One that nobody waits for at the backend is not known, so
// it counts as free: then the want is not for anything.
func (g *Graph) resolve(w *want) {
	if w.gate.Permits == 0 {
		return
	}
	for n := range w.gate.Permits {
		r := g.slots[slot{w.gate.Text, n}]
		if r == nil {
			w.any = nil
			return
		}
		w.any = append(w.any, r)
	}
}

// free reports whether it waits for nobody.
func (w *want) free() bool {
	for _, r := range w.any {
		if r.busy == 0 {
			return true
		}
	}
	return len(w.any) == 0
}

// release grants a resource to all who want it, one after the other, and returns those that go on.
func (r *resource) release() (goOn []*process) {
	for _, w := range r.wanted {
		if w.granted {
			continue
		}
		w.granted = true
		if w.process.open--; w.process.open == 0 {
			goOn = append(goOn, w.process)
		}
	}
	return goOn
}

// prune takes out stuck processes that no stuck process waits for, because they are in no cycle.
// Otherwise a long queue behind a cycle would be searched once for each waiter.
func (g *Graph) prune() {
	var out []*process
	for _, p := range g.processes {
		if p.open == 0 {
			continue
		}
		for r := range p.stuckOn() {
			r.live++
		}
	}
	for _, p := range g.processes {
		for _, r := range p.holds {
			if r.live > 0 {
				p.asked++
			}
		}
		if p.open > 0 && p.asked == 0 {
			out = append(out, p)
		}
	}
	for len(out) > 0 {
		p := out[len(out)-1]
		out = out[:len(out)-1]
		for r := range p.stuckOn() {
			if r.live--; r.live > 0 {
				continue
			}
			for _, h := range r.holders {
				if h.asked--; h.asked == 0 && h.open > 0 {
					out = append(out, h.process)
				}
			}
		}
		p.open = 0
	}
}

// stuckOn yields what the process waits for in vain.
func (p *process) stuckOn() iter.Seq[*resource] {
	return func(yield func(*resource) bool) {
		for _, w := range p.wants {
			if w.granted {
				continue
			}
			for _, r := range w.any {
				if !yield(r) {
					return
				}
			}
		}
	}
}
