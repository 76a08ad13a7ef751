package deadlock

// Parents tells who has started the processes of this host.
type Parents struct {
	Host string

	// Of returns the process that has started another. It returns false if that is not known.
	Of func(pid int) (parent int, ok bool)

	// Waits reports whether a process waits for the end of those that it has started.
	Waits func(pid int) bool
}

// maxParents ends a search for ancestors, whatever the system says.
const maxParents = 1000

// Link adds to the graph that a process waits for the end of another one that it runs, as holdfast
// run does. So it waits for what its command waits for. Call Link when all keys were added.
func (g *Graph) Link(parents Parents) {
	for _, p := range g.sorted() {
		id := p.Process
		if id.Host != parents.Host {
			continue
		}
		if a := g.ancestor(id, parents); a != nil {
			end := new(resource)
			end.holders = []holding{{process: p}}
			p.holds = append(p.holds, end)
			a.wants = append(a.wants, &want{process: a, any: []*resource{end}})
		}
	}
}

// ancestor returns the nearest one that is in the graph, if that waits for its command.
func (g *Graph) ancestor(id Process, parents Parents) *process {
	pid := id.PID
	for range maxParents {
		parent, ok := parents.Of(pid)
		if !ok || parent == pid {
			return nil
		}
		pid = parent
		if a := g.processes[Process{id.Host, pid}]; a != nil {
			if !parents.Waits(pid) {
				return nil
			}
			return a
		}
	}
	return nil
}
