package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// history is a run of a plan, in a bubble.
type history struct {
	*plan
	start     time.Time
	began     clock.Instant   // the same on the lease clock
	base      context.Context // of all acquisitions; ended when a history hangs
	abort     context.CancelFunc
	stop      chan struct{} // closed when no new acquisition may begin
	stack     stack
	procs     []*process     // guarded by mu
	ends      atomicDuration // until when a Close may last in a process that is dead
	delayed   atomic.Bool    // what a Close left may arrive when the faults end
	keyed     []*keyState
	served    atomic.Int64
	permitted atomic.Int64    // permits of these
	ignored   map[string]bool // invariants that do not count
	suspended atomic.Int64    // when timers are right again after a suspend, since start

	suspendedAt atomic.Int64 // the last suspend, since start
	suspends    atomic.Int64 // how many there were

	ring *ring

	mu         sync.Mutex
	violations []violation
}

// violation is a promise that was seen broken.
type violation struct {
	at        time.Duration
	invariant string
	what      string
}

func (v violation) String() string { return fmt.Sprintf("%v: %s: %s", v.at, v.invariant, v.what) }

// maxViolations is how many of one invariant are kept.
const maxViolations = 2

func (h *history) now() time.Duration { return time.Since(h.start) }

func (h *history) violate(invariant, format string, args ...any) {
	v := violation{h.now(), invariant, fmt.Sprintf(format, args...)}
	h.mu.Lock()
	defer h.mu.Unlock()
	same := 0
	for _, v := range h.violations {
		if v.invariant == invariant {
			same++
		}
	}
	if same < maxViolations && !h.ignored[invariant] {
		h.ring.mark()
		h.violations = append(h.violations, v)
	}
}

func (h *history) failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.violations) > 0
}

func (h *history) stopping() bool {
	select {
	case <-h.stop:
		return true
	default:
		return false
	}
}

func (h *history) report() string {
	var b strings.Builder
	fmt.Fprintln(&b, h.plan)
	for _, v := range h.violations {
		fmt.Fprintln(&b, "\t"+v.String())
	}
	return b.String()
}

// run runs the plan. It is called in a bubble, and leaves no goroutine in it unless a violation
// says so.
func (p *plan) run(log *ring, ignored map[string]bool) *history {
	h := &history{plan: p, ignored: ignored, start: time.Now(), began: clock.Now(),
		stop: make(chan struct{}), ring: log}
	log.begin(h.start)
	h.base, h.abort = context.WithCancel(context.Background())
	defer h.abort()
	h.stack = newStack(p)
	for i := range p.keys {
		h.keyed = append(h.keyed, newKey(i, p.permitsOf(i)))
	}
	for i := range p.processes {
		h.add(newProcess(h, i))
	}
	var working sync.WaitGroup
	for _, proc := range h.processes() {
		for i := range p.workers {
			w := newWorker(proc, i)
			working.Go(w.run)
		}
	}
	finished := make(chan struct{})
	go func() {
		working.Wait()
		close(finished)
	}()

	go h.watch(finished)
	h.chaos(finished)
	close(h.stop)
	h.calm()
	begun := h.now()
	for !within(h.bound(begun)-h.now(), finished) {
		if h.now() < h.bound(begun) {
			continue // a Close has said meanwhile that it left a key
		}
		bound := h.now() - begun
		h.violate("liveness", "not every waiter was served within %v after the faults:%s", bound,
			h.describe())
		h.abort()
		if !within(h.serve(), finished) {
			h.violate("liveness", "calls that did not return though their contexts ended")
			return h
		}
		break
	}
	last := h.now()
	time.Sleep(h.cleanUp() + h.blocks())
	for _, k := range h.stored() {
		time.Sleep(max(k.left.Load(), k.excused.Load(), k.refused.Load()) - h.now())
	}
	h.debris(fmt.Sprintf("before the Lockers were closed, and %v after the last release",
		h.now()-last))
	h.idleLockers()
	if !h.failed() {
		h.probe()
	}
	for _, proc := range h.processes() {
		proc.shut()
	}
	h.stack.close()
	return h
}

// bound returns by when everybody has been served if the faults ended at begun. It is later if
// somebody deleted a key, a Close said that it left one, or a process died.
func (h *history) bound(begun time.Duration) time.Duration {
	bound := max(begun, h.ends.Load()) + h.serve()
	for _, k := range h.stored() {
		bound = max(bound, k.excused.Load()+h.serve(), k.left.Load()+h.serve(),
			k.refused.Load()+h.serve())
	}
	return bound
}

// within reports whether the channel is closed within d.
func within(d time.Duration, closed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-closed:
		return true
	case <-timer.C:
		return false
	}
}

// chaos causes faults, beside those of single calls, until the faults end or all work is done.
func (h *history) chaos(finished <-chan struct{}) {
	r := rand.New(rand.NewPCG(h.seed, 2))
	fate := rand.New(rand.NewPCG(h.seed, 7))
	var died []*process
	end := h.start.Add(h.length)
	var over time.Time // when the last outage is
	for time.Now().Before(end) {
		if within(time.Duration(r.ExpFloat64()*float64(h.gust))+1, finished) {
			time.Sleep(time.Until(over)) // a clean-up has to outlast the outage
			return
		}
		proc := pick(r, h.processes()...)
		if h.has(deaths) && len(died) < mostDeaths && !proc.dead.Load() && fate.IntN(10) == 0 {
			died = append(died, proc)
			proc.die(fate.IntN(3) > 0)
			continue
		}
		long := time.Duration(r.ExpFloat64() * float64(pick(r, h.gust, 3*h.gust, 20*h.gust,
			time.Second, 8*time.Second)))
		switch r.IntN(4) {
		case 0:
			if h.has(outages) && r.IntN(2) == 0 {
				kind := outage(1 + r.IntN(int(lastOutage)))
				all := r.IntN(2) == 0
				over = time.Now().Add(long)
				if h.has(closes) && r.IntN(3) == 0 {
					go proc.reopen(false) // what people do when nothing works
				}
				for _, other := range h.processes() {
					if all || other == proc {
						h.ring.note(evOutage, other.id, 0, 0, uint64(kind), uint64(long))
						for i, w := range other.wires {
							if len(other.wires) == 1 || r.IntN(2) == 0 || i == 0 && all {
								w.fail(kind, long)
							}
						}
					}
				}
			}
		case 1:
			if h.has(pauses) {
				h.ring.note(evPause, proc.id, 0, 0, uint64(long), 0)
				for _, w := range proc.wires {
					w.pause(long)
				}
			}
		case 2:
			if h.has(suspends) {
				h.suspend(min(long, 2*h.longest(), 2*time.Second))
			}
		case 3:
			if h.has(evictions) {
				k := pick(r, h.stored()...)
				h.ring.note(evEvict, 0, 0, k.index, 0, 0)
				// longer than any lease that was granted
				k.excused.raise(h.now() + h.longest() + h.length)
				h.stack.lose(k.name)
			}
		}
	}
}

// suspend suspends everything. Timers stand still meanwhile, and a Locker looks for that every 250
// ms.
//
// On Redis nothing is suspended while a connection hangs: requests on their way there would take
// effect more than a TTL after they were sent, when their clean-up is over. On memory such requests
// are lost.
func (h *history) suspend(d time.Duration) {
	for _, proc := range h.processes() {
		for _, w := range proc.wires {
			if h.redis && w.lags(0) {
				return
			}
		}
	}
	h.ring.note(evSuspend, 0, 0, 0, uint64(d), 0)
	h.suspended.Store(int64(h.now() + 251*time.Millisecond))
	h.suspendedAt.Store(int64(h.now()))
	h.suspends.Add(1)
	clock.SimulateSuspend(d)
	h.stack.suspend(d)
	for _, k := range h.stored() {
		k.outlived()
	}
}

// calm ends all faults.
func (h *history) calm() {
	for _, proc := range h.processes() {
		for _, w := range proc.wires {
			w.mend()
		}
	}
	if h.delayed.Load() {
		for _, k := range h.stored() {
			k.left.raise(h.now() + h.longest() + h.cleanUp())
		}
	}
}

// late reports whether timers may be late now, because everything was suspended.
func (h *history) late() bool { return int64(h.now()) <= h.suspended.Load() }

// idleLockers checks that the Lockers know of nothing that is held, or waits, and that each lock
// has ended by their counters. More may be lost than were acquired: a caller who gives up, or a set
// that is not complete, does not learn of a lock that is lost.
func (h *history) idleLockers() {
	for _, proc := range h.processes() {
		s := proc.open().locker.Stats()
		if s.Held != 0 || s.Waiting != 0 || s.Acquired > s.Released+s.Lost {
			h.violate("debris", "process %d: nobody does anything, but %+v", proc.id, s)
		}
	}
}

// debris looks for keys and waiters that nobody wants any more.
func (h *history) debris(when string) {
	for _, k := range h.stored() {
		if h.litter(k) {
			continue
		}
		for i, e := range h.stack.inspect(k.name) {
			for _, holder := range holders(e) {
				h.violate("debris", "node %d: %s is held by %s for another %v, %s", i, k.name,
					holder.Owner, holder.ExpiresIn, when)
			}
			for _, w := range e.Waiters {
				h.violate("debris", "node %d: %s waits for %s for another %v, %s", i, w.Owner,
					k.name, w.ExpiresIn, when)
			}
		}
	}
}

// holders are those who hold the key at a node, alone or together.
func holders(e driver.Entry) []driver.Party {
	if e.Holder.Owner != "" {
		return []driver.Party{e.Holder}
	}
	return e.Sharers
}

// probe acquires every key and every slot. They are free, so each takes one round trip.
func (h *history) probe() {
	for _, k := range h.keyed {
		excused := false
		for _, s := range k.held() {
			excused = excused || h.litter(s)
		}
		if !excused {
			h.probeKey(k)
		}
	}
}

func (h *history) probeKey(k *keyState) {
	options := []holdfast.AcquireOption{holdfast.WithTTL(10 * time.Second)}
	if k.slots != nil {
		options = append(options, holdfast.WithPermits(len(k.slots)))
	}
	locker := h.alive().open().locker
	ctx, cancel := context.WithTimeout(h.base, h.serve())
	defer cancel()
	taken := make(map[int]bool)
	for range k.held() {
		lock, err := locker.Acquire(ctx, k.name, options...)
		if err != nil {
			h.violate("liveness", "nobody holds %s, but a probe did not get it: %v", k.name, err)
			continue
		}
		if taken[lock.Slot()] {
			h.violate("slots", "%s: a probe has slot %d twice", k.name, lock.Slot())
		}
		taken[lock.Slot()] = true
		defer func() {
			if err := lock.Release(ctx); err != nil {
				h.violate("liveness", "a probe did not release %s: %v", k.name, err)
			}
		}()
	}
	if lock, err := locker.TryAcquire(ctx, k.name, options...); err == nil {
		h.violate("permits", "%s: a probe holds all there is, and got slot %d", k.name, lock.Slot())
		lock.Release(ctx)
	}
}

// describe prints who holds and waits, for the report of a history that hangs.
func (h *history) describe() string {
	var b strings.Builder
	for _, k := range h.stored() {
		for i, e := range h.stack.inspect(k.name) {
			fmt.Fprintf(&b, "\n\t\tnode %d, %s: %d waiters", i, k.name, len(e.Waiters))
			for _, holder := range holders(e) {
				fmt.Fprintf(&b, ", holder %q for %v", holder.Owner, holder.ExpiresIn)
			}
		}
	}
	for _, proc := range h.processes() {
		fmt.Fprintf(&b, "\n\t\tprocess %d: %+v", proc.id, proc.open().locker.Stats())
	}
	return b.String()
}
