package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// process is a program with a Locker, and its connection to the backend. When it closes the Locker
// it goes on with another.
type process struct {
	h        *history
	id       int
	backend  driver.Backend
	wires    []path // to each node
	variants []variant

	mu      sync.Mutex
	r       *rand.Rand // for hooks
	life    *life
	known   []int          // how many permits it knows each key to have
	lives   int            // so far
	closing sync.WaitGroup // lives that are being closed

	moments  moments
	load     load
	attempts asked

	base context.Context // of all that it does; ends when the process dies or the history hangs
	end  context.CancelFunc
	dead atomic.Bool
	next atomic.Pointer[process] // the next one when it is dead; nil: none
}

// life is one Locker of a process, from New to Close.
type life struct {
	locker *holdfast.Locker
	label  string // in the owner values of this Locker alone
}

func newProcess(h *history, id int) *process {
	p := &process{
		h: h, id: id,
		variants: h.variants(),
		r:        rand.New(rand.NewPCG(h.seed, uint64(200+id))),
	}
	p.moments.r = rand.New(rand.NewPCG(h.seed, uint64(300+id)))
	p.load.h = h
	p.base, p.end = context.WithCancel(h.base)
	p.backend, p.wires = h.stack.connect(p)
	p.begin()
	return p
}

// begin opens a Locker. The caller holds p.mu, or is the only one to know p.
func (p *process) begin() {
	p.lives++
	label := fmt.Sprintf("process %d, Locker %d", p.id, p.lives)
	options := []holdfast.Option{
		holdfast.WithLabel(label), holdfast.WithTTL(p.h.ttls[0]),
		holdfast.WithCohort(p.h.turns, p.h.span),
	}
	if p.h.has(waitPanics | wildPanics | hookBlocks | hookCalls) {
		options = append(options, holdfast.WithHooks(p.hooks()))
	}
	locker, err := holdfast.New(p.backend, options...)
	if err != nil {
		panic(fmt.Sprintf("%v: New: %v", p.h.plan, err))
	}
	p.life = &life{locker: locker, label: label}
	p.learn()
}

// learn draws how many permits the process knows each semaphore to have from now on. While a larger
// number is rolled out, processes that came early know of fewer.
func (p *process) learn() {
	p.known = nil
	for _, k := range p.h.keyed {
		n := len(k.slots)
		if p.h.has(rollouts) && n > 1 && p.r.IntN(1+p.lives) == 0 {
			n = 1 + p.r.IntN(n-1)
		}
		p.known = append(p.known, n)
	}
}

// permits returns how many permits the process knows a key to have.
func (p *process) permits(k *keyState) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[k.index]
}

// open returns the Locker of now.
func (p *process) open() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// reopen opens the next Locker and closes the one before, on the goroutine of the caller if that is
// a hook.
func (p *process) reopen(inHook bool) {
	p.mu.Lock()
	if p.dead.Load() {
		p.mu.Unlock()
		return
	}
	old := p.life
	p.begin()
	p.closing.Add(1)
	p.mu.Unlock()
	defer p.closing.Done()
	if inHook {
		p.closed(old, old.locker.Close())
	} else {
		p.close(old)
	}
}

// close closes a Locker, and checks what Close promises.
func (p *process) close(l *life) {
	h := p.h
	h.ring.note(evClose, p.id, 0, 0, 0, 0)
	var err error
	closed := make(chan struct{})
	go func() {
		err = l.locker.Close()
		close(closed)
	}()
	if !within(h.plan.closing()+p.pausing(), closed) {
		h.violate("close", "the Close of %s has not returned after %v", l.label, h.plan.closing())
		return
	}
	p.closed(l, err)
}

// closed checks what a Close that returned err promises.
func (p *process) closed(l *life, err error) {
	h := p.h
	h.ring.note(evClosed, p.id, 0, 0, 0, 0)
	if err != nil {
		// Close has said so: the keys run into their TTL. What was sent before may be under way,
		// and arrive when the faults end.
		for _, k := range h.stored() {
			k.left.raise(h.now() + h.longest() + h.cleanUp())
		}
		h.delayed.Store(true)
		if n, _ := kinds(err); n == 0 {
			h.violate("errors", "Close: of no kind: %v", err)
		}
		return
	}
	owing := p.owing()
	for _, k := range h.stored() {
		// A Close that returns nil says that even what the backend refused to release is gone.
		if h.now() < max(k.excused.Load(), k.left.Load()) {
			continue
		}
		left := make(map[string]int) // on how many nodes, by owner value
		for i, e := range h.stack.inspect(k.name) {
			if owing[i] {
				continue
			}
			for _, party := range append(e.Waiters, holders(e)...) {
				if party.Owner == "" || driver.ParseOwner(party.Owner).Label != l.label {
					continue
				}
				// What only a minority of the nodes still has keeps nobody from the key. A quorum
				// cleans it up by itself.
				if left[party.Owner]++; left[party.Owner] == h.stack.size()/2+1 {
					h.violate("close", "Close of %s returned nil, and left %s on %s for another %v",
						l.label, party.Owner, k.name, party.ExpiresIn)
				}
			}
		}
	}
}

// owing reports for each node whether the process's quorum may still be giving something back
// there. It does so by itself, as for a claim that it has answered with Busy or Lost, and says so
// in its Status. That nothing stays for ever is checked at the end of the history.
func (p *process) owing() []bool {
	owing := make([]bool, p.h.stack.size())
	if q, ok := p.backend.(*quorum.Quorum); ok {
		for i, n := range q.Status().Nodes {
			owing[i] = n.Pending > 0 || n.Owed > 0
		}
	}
	return owing
}

// pausing returns for how much longer the process is stopped.
func (p *process) pausing() time.Duration { return p.wires[0].pausing() }

// shut closes the process's last Locker.
func (p *process) shut() {
	done := make(chan struct{})
	go func() {
		p.closing.Wait()
		close(done)
	}()
	if !within(p.h.plan.closing(), done) {
		p.h.violate("close", "process %d: a Close has not returned", p.id)
	}
	p.close(p.open())
	p.end()
	p.backend.Close()
}

// extendNow, with a chance, makes a holder extend its lock while a renewal is on its way.
func (p *process) extendNow(key *keyState) {
	p.mu.Lock()
	x := p.r.Float64()
	p.mu.Unlock()
	if !p.h.has(extends) || x > 0.1 || p.h.stopping() {
		return
	}
	go func() {
		if g := key.anyOf(p); g != nil {
			if err := g.lock.Extend(p.base); err != nil {
				p.h.refusal("extend", p.base, err)
			}
			p.h.look(g)
		}
	}()
}

// awake waits while the process is stopped.
func (p *process) awake() {
	for rest := p.pausing(); rest > 0 && !p.h.stopping(); rest = p.pausing() {
		within(rest, p.h.stop)
	}
}
