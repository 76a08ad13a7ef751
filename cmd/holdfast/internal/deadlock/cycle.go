package deadlock

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// Cycle is a ring of processes: each waits for something that the next one has, and the last for
// what the first one has.
type Cycle []Step

// Step is one process of a Cycle.
type Step struct {
	Process
	Holds Claim // what the one before waits for; zero if that one waits for the end of this process
	Waits Claim // what the next one holds; zero if this process waits for the end of the next
}

// Claim is a key that a process holds or waits for.
type Claim struct {
	Name  look.Name
	Full  string // the key as the backend knows it; empty if there is none
	Party look.Party
}

// Cycles returns cycles in order: the shortest through each process that is in one. A process that
// is in no returned cycle is in none at all. Call it once.
func (g *Graph) Cycles() (cycles []Cycle) {
	g.reduce()
	g.prune()
	named := make(map[*process]bool)
	for _, p := range g.sorted() {
		if p.open == 0 || named[p] {
			continue
		}
		path := p.shortest()
		for _, s := range path {
			named[s.want.process] = true
		}
		if len(path) > 0 {
			cycles = append(cycles, cycleOf(path))
		}
	}
	return cycles
}

// sorted returns the processes in order.
func (g *Graph) sorted() []*process {
	return slices.SortedFunc(maps.Values(g.processes), func(a, b *process) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID))
	})
}

// step goes from a process to one that has what it wants.
type step struct {
	want *want
	what *resource
	to   holding
}

// search looks for a shortest way from a process back to it, by others.
type search struct {
	begin *process
	came  map[*process]step // how the search came to a process first
	seen  map[*resource]bool
	next  []*process
}

// shortest returns the steps of a shortest way from the process back to it; nil if there is none.
func (p *process) shortest() (path []step) {
	s := search{begin: p, came: make(map[*process]step), seen: make(map[*resource]bool)}
	for s.next = []*process{p}; len(s.next) > 0; s.next = s.next[1:] {
		for _, w := range s.next[0].wants {
			if !w.granted && s.follow(w) {
				return s.path()
			}
		}
	}
	return nil
}

// follow goes on to those who have what is wanted, and reports whether one is the begin.
func (s *search) follow(w *want) bool {
	for _, r := range w.any {
		if s.seen[r] {
			continue
		}
		// A later visit finds no new process, except the beginning, which does not go to itself.
		s.seen[r] = w.process != s.begin
		for _, h := range r.holders {
			if h.process == w.process || h.open == 0 || s.came[h.process].want != nil {
				continue
			}
			s.came[h.process] = step{w, r, h}
			if h.process == s.begin {
				return true
			}
			s.next = append(s.next, h.process)
		}
	}
	return false
}

// path returns the steps that were found.
func (s *search) path() (path []step) {
	for at := s.begin; ; {
		last := s.came[at]
		path = append(path, last)
		if at = last.want.process; at == s.begin {
			slices.Reverse(path)
			return path
		}
	}
}

func cycleOf(path []step) Cycle {
	cycle := make(Cycle, len(path))
	for i, s := range path {
		cycle[i].Process = s.want.process.Process
		if s.what.full == "" {
			continue
		}
		cycle[i].Waits = Claim{s.what.name, s.what.full, s.want.party}
		cycle[(i+1)%len(path)].Holds = Claim{s.what.name, s.what.full, s.to.party}
	}
	return cycle
}
