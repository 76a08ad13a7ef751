package deadlock

import "github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"

// Process is a process as owner values tell it from others.
type Process struct {
	Host string
	PID  int
}

// Graph has the waiters of each key, and its holders. It keeps nothing of keys that nobody waits
// for.
type Graph struct {
	processes map[Process]*process
	slots     map[slot]*resource // permits that somebody waits for
}

// process is a process that holds or waits for something in the graph.
type process struct {
	Process
	holds []*resource
	wants []*want
	open  int // how many of wants it has to wait for; 0 if it is in no cycle
	asked int // how many of holds somebody wants who may be in a cycle
}

// resource is what a process waits for: a key, or the end of another process.
type resource struct {
	name    look.Name
	full    string // empty for the end of a process
	holders []holding
	wanted  []*want
	busy    int // how many holders are stuck
	live    int // how many wants of those that may be in a cycle are for it
}

// holding is one process that has a resource.
type holding struct {
	*process
	party look.Party
}

// want is what a process waits for: any one of its resources, whichever comes first.
type want struct {
	process *process
	party   look.Party
	any     []*resource
	gate    look.Name // of a semaphore: stands for its slots; else zero
	granted bool      // one of any comes without a deadlock's end
}

// slot is a permit of a semaphore.
type slot struct {
	semaphore string
	number    int
}

// New returns a graph without keys.
func New() *Graph {
	return &Graph{processes: make(map[Process]*process), slots: make(map[slot]*resource)}
}

// Add adds a key with its holders and waiters.
func (g *Graph) Add(k look.Key) {
	switch k.Kind {
	case look.Lock:
		if len(k.Waiters) == 0 {
			return
		}
		r := g.resource(k)
		for _, w := range k.Waiters {
			if !known(w) || r.heldOnlyBy(processOf(w)) {
				continue
			}
			g.wait(w).any = []*resource{r}
		}
	case look.Gate:
		// A waiter of the gate waits for any permit, and so does the holder of the gate, which
		// waits at the slots.
		for _, party := range append(k.Holders[:len(k.Holders):len(k.Holders)], k.Waiters...) {
			if known(party) {
				g.wait(party).gate = k.Name
			}
		}
	case look.Permit:
		if len(k.Waiters) > 0 {
			g.slots[slot{k.Text, k.Slot}] = g.resource(k)
		}
	}
}

// known reports whether a party is a process that may live. The lease of a dead process ends by
// itself, and it is not known what another library does.
func known(p look.Party) bool { return !p.Foreign() && p.Life != look.Gone }

func processOf(p look.Party) Process { return Process{p.Host, p.PID} }

// process returns the node of a process.
func (g *Graph) process(id Process) *process {
	p := g.processes[id]
	if p == nil {
		p = &process{Process: id}
		g.processes[id] = p
	}
	return p
}

// resource adds a key with its holders.
func (g *Graph) resource(k look.Key) *resource {
	r := &resource{name: k.Name, full: k.Full}
	for _, h := range k.Holders {
		if known(h) {
			r.add(g.process(processOf(h)), h)
		}
	}
	return r
}

func (r *resource) add(p *process, party look.Party) {
	r.holders = append(r.holders, holding{p, party})
	p.holds = append(p.holds, r)
}

// heldOnlyBy reports whether nobody else holds the key. A process that waits for itself is no
// deadlock: it has two goroutines, or it is two processes in containers of one name.
func (r *resource) heldOnlyBy(id Process) bool {
	for _, h := range r.holders {
		if h.Process != id {
			return false
		}
	}
	return true
}

// wait has the process of the party wait for something.
func (g *Graph) wait(party look.Party) *want {
	p := g.process(processOf(party))
	w := &want{process: p, party: party}
	p.wants = append(p.wants, w)
	return w
}
