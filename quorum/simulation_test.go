package quorum_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum"
)

// The simulation runs random histories: a few clients, each with a Quorum of its own, compete for a
// key or two on N servers, while requests, replies and notices are delayed, lost and repeated,
// servers crash, hang, forget and have wrong clocks, connections are cut, and clients stop for a
// while or for ever. In fake time, from a seed.
//
// The invariants, of which each history says on which assumptions they rest:
//
//  1. Exclusion: no acquisition begins to be valid while another one of its key is, unless both
//     share the key. One shares it from when its Downgrade is asked for, and never holds it alone
//     again. Rests on the rate of clocks, and on servers not forgetting, unless they have a
//     quarantine.
//     So that this is seen at once, a majority of servers keeps the key for a valid claim until its
//     deadline: see simbacking_test.go.
//  2. Tokens are unique, unless both share the key, and larger than those of every acquisition that
//     was complete before theirs began. Rests on servers not forgetting; or, with a quarantine, on
//     the rate of clocks and on the clients' clocks agreeing to within the guard less a TTL.
//  3. No debris: when the faults have ended, and a moment after the last release, no server has a
//     key or waiter of a claim that was released or refused.
//  4. No hang: when the faults have ended, every waiter is served. Every call returns within its
//     bound, faults or not.
//  5. Nothing is remembered of claims that are over.
//  6. A release of a claim that held the key says what the servers have done: see
//     simrelease_test.go.

// plan is what a history does, drawn from its seed.
type plan struct {
	seed    uint64
	nodes   int
	clients int
	workers int // of each client
	keys    int
	ttl     time.Duration
	guard   time.Duration // 0: quarantine off
	length  time.Duration // until the faults end
	pace    time.Duration // mean time between faults
	stay    float64       // mean time a lock is held, in TTLs
	idle    time.Duration // mean time between two claims of a worker

	weather   weather
	presence  time.Duration   // 0: no queue
	presences []time.Duration // if servers differ in that; else nil
	clocks    []time.Duration // by how much servers' clocks are ahead, if they differ; else nil
	clockless int             // so many servers do not tell their clocks

	crashes, forgets, freezes, cuts, pauses, rates, jumps, backJumps bool
	// their clocks are anything
	wildClients bool
	// are the clients', and not the Quorum's
	tickets bool
	deaths  bool // of holders and waiters
	// how many of the claims are shared; 0: none, and no Downgrade either
	sharing float64
	// the servers' operator vouches for them
	durable bool
	// servers lose their data one after the other, and nothing else happens
	rolling bool
	// the last client is configured for another set of nodes
	misfit bool
	// by how much nodes' counters of tokens differ at first; other keys may draw from them, too
	uneven time.Duration
	ambush ambush
	broken fault
}

// assumptions says which assumptions the history breaks.
func (p *plan) assumptions() (clocks, memory, clientClocks bool) {
	return !p.jumps, !p.forgets || p.guard > 0, !p.wildClients
}

// backs says whether the history keeps all that the backing of claims rests on.
func (p *plan) backs() bool {
	clocks, _, _ := p.assumptions()
	return clocks && !p.forgets
}

func (p *plan) String() string {
	clocks, memory, clientClocks := p.assumptions()
	var broken []string
	if !clocks {
		broken = append(broken, "server clocks")
	}
	if !memory {
		broken = append(broken, "memory without quarantine")
	}
	if !clientClocks {
		broken = append(broken, "client clocks")
	}
	if broken == nil {
		broken = []string{"none"}
	}
	return fmt.Sprintf(
		"seed %d: %d nodes, %d clients of %d workers, %d keys, TTL %v, guard %v, sharing %v; "+
			"assumptions broken: %s",
		p.seed, p.nodes, p.clients, p.workers, p.keys, p.ttl, p.guard, p.sharing,
		strings.Join(broken, ", "))
}

// guardOverTTL is what the guard has over the TTL, and clients' clocks agree to within that, unless
// they are wild.
const guardOverTTL = time.Second

// newPlan draws a plan. It is one list of draws, whose order the seeds rest on.
func newPlan(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 1))
	often := func(p float64) bool { return r.Float64() < p }
	p := &plan{
		seed:    seed,
		nodes:   []int{1, 2, 3, 3, 3, 4, 5, 5, 5, 7}[r.IntN(10)],
		clients: 1 + r.IntN(3),
		workers: 1 + r.IntN(2),
		keys:    1 + r.IntN(2),
		ttl:     []time.Duration{300 * time.Millisecond, time.Second, 4 * time.Second}[r.IntN(3)],
		length:  time.Duration(1+r.IntN(5)) * time.Second,
		presence: []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond,
			300 * time.Millisecond, 300 * time.Millisecond,
			time.Second, 3 * time.Second}[r.IntN(7)],
		pace: []time.Duration{50 * time.Millisecond, 400 * time.Millisecond, 400 * time.Millisecond,
			400 * time.Millisecond}[r.IntN(4)],
		stay: []float64{0.03, 0.3, 0.3, 2}[r.IntN(4)],
		idle: 100 * time.Millisecond,
	}
	p.weather.delay = []time.Duration{50 * time.Microsecond, 500 * time.Microsecond,
		3 * time.Millisecond}[r.IntN(3)]
	if often(0.6) {
		p.weather.loseRequest = 0.1 * r.Float64()
		p.weather.loseReply = 0.1 * r.Float64()
		p.weather.repeat = 0.1 * r.Float64()
		p.weather.straggle = 0.1 * r.Float64()
		p.weather.loseNotice = 0.5 * r.Float64()
		p.weather.repeatNotice = 0.5 * r.Float64()
		p.weather.lateNotice = 0.5 * r.Float64()
		if often(0.2) {
			p.weather.loseRequest, p.weather.loseReply = 0.4*r.Float64(), 0.4*r.Float64()
		}
	}
	if often(0.7) {
		p.guard = p.ttl + guardOverTTL
		p.length += 2 * p.guard // so that there is life after a quarantine
	}
	p.crashes, p.freezes, p.cuts = often(0.4), often(0.4), often(0.4)
	p.pauses, p.rates, p.deaths = often(0.3), often(0.5), often(0.3)
	p.forgets = p.crashes && often(0.5)
	p.jumps, p.backJumps = often(0.15), often(0.15)
	p.wildClients = often(0.3)
	p.tickets = often(0.2)
	p.durable = !p.forgets && often(0.5)
	p.misfit = p.nodes >= 3 && p.clients > 1 && !p.forgets && often(0.2)
	switch kind := r.Float64(); {
	case forced == "rolling" || forced == "" && kind < 0.1:
		p.roll()
	case forced == "lasting" || forced == "" && kind < 0.2:
		p.last()
	case forced == "contended" || forced == "" && kind < 0.4:
		p.contend(r)
	case forced == "shared" || forced == "" && kind < 0.5:
		p.crowd(r)
	}
	if !p.rolling {
		// of a source of its own, so that the rest of what older seeds draw stays
		p.delayRenewals(rand.New(rand.NewPCG(seed, 3)))
	}
	if p.sharing == 0 {
		p.share(rand.New(rand.NewPCG(seed, 4)))
	}
	p.scatter(rand.New(rand.NewPCG(seed, 5)))
	switch a := rand.New(rand.NewPCG(seed, 7)); {
	case p.rolling:
	case forced == "ambush" || forced == "" && a.Float64() < 0.2:
		p.waylay(a)
	case a.Float64() < 0.3:
		p.lieInWait(a)
	}
	p.differ(rand.New(rand.NewPCG(seed, 8)))
	p.untune(rand.New(rand.NewPCG(seed, 9)))
	return p
}

// untune has servers' clocks show unlike times, and some servers not tell theirs, in a third of the
// histories.
func (p *plan) untune(r *rand.Rand) {
	if forced != "untuned" && (forced != "" || r.Float64() > 1./3) {
		return
	}
	for range p.nodes {
		p.clocks = append(p.clocks, []time.Duration{0, 0, time.Millisecond, 2 * time.Second,
			-2 * time.Second, 30 * time.Second, -30 * time.Second, 30 * time.Minute,
			-30 * time.Minute}[r.IntN(9)])
	}
	if r.IntN(2) == 0 {
		p.clockless = r.IntN(p.nodes + 1)
	}
}

// differ has some servers keep a waiter present for shorter, or keep no queue, in a third of the
// histories with an ambush.
func (p *plan) differ(r *rand.Rand) {
	if len(p.ambush.traps) == 0 && !p.ambush.flaps || p.presence == 0 || r.Float64() > 1./3 {
		return
	}
	for range p.nodes {
		p.presences = append(p.presences,
			[]time.Duration{p.presence, p.presence, p.presence / 3, 0}[r.IntN(4)])
	}
}

// scatter has nodes' counters differ, in every other history. They may be ahead of all clocks. If a
// node forgets its counter, only the clocks keep tokens rising, so then they may not.
func (p *plan) scatter(r *rand.Rand) {
	if r.Float64() < 0.5 && !p.forgets {
		p.uneven = []time.Duration{time.Millisecond, time.Second, time.Hour}[r.IntN(3)]
	}
}

// share has claims share their keys, in every other history, and others be downgraded.
func (p *plan) share(r *rand.Rand) {
	if r.Float64() < 0.5 {
		p.sharing = []float64{0.2, 0.5, 0.9}[r.IntN(3)]
	}
}

// crowd makes the plan one of many readers of one key at once, so that nodes draw tokens for them
// in different orders, and of some writers. Clients lose nodes for longer than a lease lasts.
func (p *plan) crowd(r *rand.Rand) {
	p.clients, p.workers, p.keys = 3, 2, 1
	p.nodes = []int{3, 3, 5}[r.IntN(3)]
	p.ttl = 300 * time.Millisecond
	p.guard, p.forgets, p.misfit = 0, false, false
	p.stay, p.idle = []float64{0.01, 2}[r.IntN(2)], []time.Duration{p.weather.delay,
		20 * time.Millisecond}[r.IntN(2)]
	p.pace, p.length, p.cuts = 100*time.Millisecond, 2*time.Second, true
	p.sharing = []float64{0.5, 0.9}[r.IntN(2)]
}

// delayRenewals has some renewals come late, in every other history.
func (p *plan) delayRenewals(r *rand.Rand) {
	if r.Float64() < 0.5 {
		w := &p.weather
		w.lateRenewal = 0.5 * r.Float64()
		w.lateMost = time.Duration(1.1 * r.Float64() * float64(p.ttl))
	}
}

// forced is the kind of plan that is drawn always, instead of now and then.
var forced = os.Getenv("HOLDFAST_PLAN")

// contend makes the plan one of many that wait for one key on few servers, of which some answer
// late and some are hung for a while: whatever is left of an earlier request meets what follows
// from a later one.
func (p *plan) contend(r *rand.Rand) {
	p.nodes, p.clients, p.workers, p.keys = 3, 3, 2, 1
	p.ttl = min(p.ttl, time.Second)
	p.presence = []time.Duration{20 * time.Millisecond, 100 * time.Millisecond,
		300 * time.Millisecond}[r.IntN(3)]
	p.guard, p.forgets, p.misfit = 0, false, false
	p.stay, p.pace = []float64{0.01, 0.1}[r.IntN(2)],
		[]time.Duration{20 * time.Millisecond, 100 * time.Millisecond}[r.IntN(2)]
	p.length = 2 * time.Second
	p.freezes = true
	p.weather.delay, p.weather.straggle = 500*time.Microsecond, 0.3*r.Float64()
	p.weather.loseNotice, p.weather.repeatNotice, p.weather.lateNotice = 0.1*r.Float64(),
		0.5*r.Float64(), 0.5*r.Float64()
}

// last makes the plan one of long leases, for debris: it has to be gone long before.
func (p *plan) last() {
	p.ttl, p.stay, p.deaths = time.Minute, 0.003, false
	if p.guard > 0 {
		p.guard = p.ttl + guardOverTTL
	}
	p.length = min(p.length, 5*time.Second)
}

// roll makes the plan one of rolling losses: each server loses all its data, one after the other,
// and each time everything has come to rest before. Locks are held meanwhile, and not lost: that
// takes healing. Tokens rise, whatever the clients' clocks: that takes healing with the largest
// token of the key, which a claim that shares it may not know. Nothing else happens.
func (p *plan) roll() {
	p.rolling, p.misfit, p.wildClients = true, false, true
	p.nodes = max(p.nodes, 3)
	p.ttl = min(p.ttl, time.Second)
	p.guard = p.ttl + guardOverTTL
	// Few contend: whoever asks for a key that a server has lost takes it there for a moment, and
	// healing comes in between.
	p.keys, p.stay, p.clients, p.workers, p.presence = 1, 10, 2, 1, 0
	p.length = time.Duration(3*p.nodes) * p.rest()
	p.weather = weather{delay: min(p.weather.delay, 500*time.Microsecond)}
	p.crashes, p.freezes, p.cuts, p.pauses, p.rates, p.deaths = false, false, false, false,
		false, false
	p.forgets, p.jumps, p.backJumps, p.durable = true, false, false, false
}

// rest is the time between two losses of a rolling plan: the quarantine, and some renewals.
func (p *plan) rest() time.Duration { return p.guard + 4*p.ttl }

// history is a run of a plan.
type history struct {
	*plan
	t   testing.TB
	net *network

	mu         sync.Mutex
	holds      map[string][]*hold // by key, all that were granted
	valid      map[string][]*hold // those that may be valid, if it is checked what backs them
	completed  map[string]driver.Token
	dead       map[string]bool // owner values that were left behind
	violations []string
	log        []string

	lost   clock.Instant // of a rolling plan: when a server lost its data last; guarded by net.mu
	stop   chan struct{} // closed when workers shall not begin anew
	served atomic.Int64
}

// hold is an acquisition that was valid.
type hold struct {
	owner    string
	deadline clock.Instant
	ended    bool
	shared   bool // or may be: its Downgrade was asked for
	blocks   []block
}

type block struct {
	first, last driver.Token
	shared      bool // drawn when the hold counted as one that shares the key
}

func (h *history) violate(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violateLocked(format, args...)
}

func (h *history) violateLocked(format string, args ...any) {
	h.violations = append(h.violations, fmt.Sprintf("%v: ", time.Since(h.net.start))+
		fmt.Sprintf(format, args...))
}

func (h *history) note(format string, args ...any) {
	if !*verbose {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf("%v: ", time.Since(h.net.start))+fmt.Sprintf(format, args...))
}

// begun returns what a new acquisition's token has to exceed.
func (h *history) begun(key string) driver.Token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.completed[key]
}

// granted checks invariants 1 and 2.
func (h *history) granted(key string, hd *hold, b block, above driver.Token) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alone(key, hd)
	h.holds[key] = append(h.holds[key], hd)
	h.served.Add(1)
	h.drawn(key, hd, b, above)
	h.countOn(key, hd)
}

// countOn has it checked from now on that enough servers keep the key for the claim. Called with
// h.mu and net.mu held.
func (h *history) countOn(key string, hd *hold) {
	if h.net.applied == nil {
		return
	}
	if !slices.Contains(h.valid[key], hd) {
		h.valid[key] = append(h.valid[key], hd)
	}
	h.backedLocked(key)
}

// alone checks exclusion. Called with h.mu held.
func (h *history) alone(key string, hd *hold) {
	clocks, memory, _ := h.assumptions()
	now := clock.Now()
	for _, other := range h.holds[key] {
		if other != hd && !other.ended && now < other.deadline && clocks && memory &&
			!(hd.shared && other.shared) {
			h.violateLocked(
				"exclusion: %s (shared %v) is granted %q while %s (shared %v) holds it for another %v",
				hd.owner, hd.shared, key, other.owner, other.shared, other.deadline.Sub(now))
		}
	}
}

// renewed checks the invariants after a renewal, which may have reserved tokens.
func (h *history) renewed(key string, hd *hold, deadline clock.Instant, first driver.Token,
	size uint64, above driver.Token) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	hd.ended = false
	hd.deadline = deadline
	h.alone(key, hd)
	h.countOn(key, hd)
	if size > 0 {
		h.drawn(key, hd, block{first: first, last: first + driver.Token(size) - 1}, above)
	}
}

func (h *history) drawn(key string, hd *hold, b block, above driver.Token) {
	b.shared = hd.shared
	clocks, memory, clientClocks := h.assumptions()
	if !h.forgets || memory && clocks && clientClocks || h.rolling {
		if b.first <= above {
			h.violateLocked("tokens: %s got token %d of %q, and %d was complete before", hd.owner,
				b.first, key, above)
		}
		for _, other := range h.holds[key] {
			for _, o := range other.blocks {
				if b.first <= o.last && o.first <= b.last && !(b.shared && o.shared) {
					h.violateLocked("tokens: %s and %s have tokens %v and %v of %q", hd.owner,
						other.owner, b, o, key)
				}
			}
		}
	}
	if h.net.applied != nil {
		h.acknowledged(key, hd, b.last)
	}
	hd.blocks = append(hd.blocks, b)
	h.completed[key] = max(h.completed[key], b.last)
}

// worker is one user of a client's Quorum: it does what the kernel does with a backend.
type worker struct {
	h     *history
	q     *quorum.Quorum
	name  string
	r     *rand.Rand
	skew  time.Duration
	conns []*conn // of its client
	inbox chan driver.Notice
	owner *atomic.Pointer[string]
}

// gate waits while the worker's process is stopped.
func (w *worker) gate() { w.conns[0].gate() }

const drift = 0.01

func validity(lease time.Duration) time.Duration {
	return lease - time.Duration(float64(lease)*drift) - 2*time.Millisecond
}

func (w *worker) clock() driver.Token {
	return driver.Token(time.Now().Add(w.skew).UnixMicro())
}

func (w *worker) stopped() bool {
	select {
	case <-w.h.stop:
		return true
	default:
		return false
	}
}

// bounded runs a call, which has to return within its bound whatever happens.
func (w *worker) bounded(what string, steps int, call func()) {
	w.gate()
	start, pauses := time.Now(), w.conns[0].pauses()
	call()
	w.gate()
	if w.conns[0].pauses() != pauses {
		return // it is the client that has hung
	}
	// Each step may have to ask nodes that are down after the others, and an acquisition waits a
	// moment for those that are late; 1 ms is for a batch of one.
	bound := min(w.h.ttl/10, quorum.DefaultNodeTimeout)
	most := time.Duration(2*steps)*bound*11/10 + bound/5 + time.Millisecond
	if took := time.Since(start); took > most {
		w.h.violate("hang: %s took %v; at most %v is allowed", what, took, most)
	}
}

func (w *worker) acquire(ctx context.Context, c driver.Claim) (r driver.Result, err error) {
	w.bounded("Acquire", 2, func() { r, err = w.q.Acquire(ctx, c) })
	return r, err
}

func (w *worker) release(c driver.Claim) (r driver.Result, err error) {
	w.bounded("Release", 1, func() { r, err = w.q.Release(context.Background(), c) })
	w.h.note("%s: release: %v %v", c.Owner, r.State, err != nil)
	return r, err
}

func (w *worker) run() {
	for n := 0; !w.stopped(); n++ {
		w.sleep(time.Duration(w.r.ExpFloat64() * float64(w.h.idle)))
		c := driver.Claim{
			Key:   fmt.Sprintf("k%d", w.r.IntN(w.h.keys)),
			Owner: fmt.Sprintf("%s.%d", w.name, n),
			TTL:   w.h.ttl,
			Block: uint64(w.r.IntN(3)),
		}
		c.Shared = w.h.sharing > 0 && w.r.Float64() < w.h.sharing
		ctx, cancel := context.WithCancel(context.Background())
		if w.r.Float64() < 0.3 {
			patience := time.Duration(w.r.Float64() * float64(2*w.h.ttl))
			if w.r.Float64() < 0.5 {
				patience = time.Duration(w.r.Float64() * float64(4*w.h.weather.delay))
			}
			ctx, cancel = context.WithTimeout(ctx, patience)
		}
		if w.r.Float64() < 0.6 {
			w.wait(ctx, c)
		} else {
			w.try(ctx, c)
		}
		cancel()
	}
}

func (w *worker) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	w.gate()
}

// try is TryAcquire.
func (w *worker) try(ctx context.Context, c driver.Claim) {
	above, start := w.h.begun(c.Key), clock.Now()
	c.Token = w.clock()
	r, err := w.acquire(ctx, c)
	w.dawdle(hears)
	w.h.note("%s: try %s: %v %d %v", c.Owner, c.Key, r.State, r.Token, err != nil)
	switch {
	case err != nil:
		// What was granted nevertheless is the Quorum's to give back.
	case r.State == driver.Held:
		w.work(c, above, start, c.TTL, r.Token, max(c.Block, 1))
	}
}

// expect has notices for the owner value come, and no others.
func (w *worker) expect(owner string) {
	w.owner.Store(&owner)
	select {
	case <-w.inbox:
	default:
	}
}

// wait is Acquire: the kernel's loop, of which each branch is one way for an attempt to end. In
// pieces, nobody could hold it against the kernel's.
func (w *worker) wait(ctx context.Context, c driver.Claim) {
	c.Queue = true
	if w.h.tickets {
		c.Ticket = uint64(w.clock())
	}
	w.expect(c.Owner)
	above := w.h.begun(c.Key)
	var asked, present clock.Instant
	var presence time.Duration
	denied := false
	ticket := c.Ticket
	giveUp := clock.Now().Add(w.h.length + 3*w.h.guard + 20*w.h.ttl + time.Minute)
	die := w.h.deaths && w.r.Float64() < 0.1
	for polls := 0; ; polls++ {
		w.dawdle(asks)
		start := clock.Now()
		if asked == 0 {
			asked = start
		}
		c.Token = w.clock()
		if w.h.ambush.blocks {
			c.Block = uint64(w.r.IntN(3))
		}
		r, err := w.acquire(ctx, c)
		w.dawdle(hears)
		w.h.note("%s: wait %s: %v %d place %d presence %v err %v", c.Owner, c.Key, r.State, r.Token,
			r.Place, r.Presence, err != nil)
		pause := 20*time.Millisecond + time.Duration(w.r.Float64()*float64(80*time.Millisecond))
		switch {
		case ctx.Err() != nil:
			w.release(c)
			return
		case err != nil:
			if driver.Permanent(err) && !w.disagrees(err) {
				w.h.violate("Acquire failed for good: %v", err)
				w.release(c)
				return
			}
			if w.disagrees(err) {
				w.release(c)
				return
			}
			if polls == 0 && errors.Is(err, driver.ErrUnavailable) {
				return // surely nothing came of it, so there is nothing to release
			}
		case r.State == driver.Held:
			w.work(c, above, start, c.TTL, r.Token, max(c.Block, 1))
			return
		default:
			since, span := asked, r.Presence
			if present != 0 {
				since, span = present, min(presence, r.Presence)
			}
			if waited := uint64(start.Sub(asked) / time.Microsecond); ticket == 0 && r.Clock > 0 {
				ticket = r.Clock - min(waited, r.Clock-1)
			}
			late := since != start && clock.Now() >= since.Add(validity(span))
			if r.Presence > 0 && (late || denied) {
				// It may have held the key and have lost it: a late notice of that grant would
				// count as a new one.
				w.release(c)
				c.Owner, c.Ticket = c.Owner+"+", ticket
				w.expect(c.Owner)
				asked, present, denied = 0, 0, false
				continue
			}
			denied = denied || r.Presence == 0
			if presence = r.Presence; presence > 0 {
				present = start
				pause = presence/3 + time.Duration(w.r.IntN(1000))
			}
			if r.ExpiresIn > 0 && r.Place <= 1 {
				pause = min(pause, r.ExpiresIn+time.Millisecond)
			}
		}
		if die && polls > 0 {
			w.die(c)
			return
		}
		if clock.Now() > giveUp {
			w.h.violate("hang: %s waits for %q since long after the faults have ended:%s", c.Owner,
				c.Key, w.h.net.describe(c.Key))
			w.release(c)
			return
		}
		timer := time.NewTimer(pause)
		select {
		case n := <-w.inbox:
			w.h.note("%s: notice %d token %d", c.Owner, n.Kind, n.Token)
			w.gate()
			w.dawdle(notices)
			if n.Kind == driver.Granted && presence > 0 &&
				clock.Now() < present.Add(validity(presence)) {
				timer.Stop()
				w.work(c, above, present, presence, n.Token, n.Block)
				return
			}
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			w.release(c)
			return
		}
		timer.Stop()
	}
}

// disagrees reports whether err is that of a client which is configured for another set than the
// servers belong to.
func (w *worker) disagrees(err error) bool {
	return w.h.misfit && errors.As(err, new(*driver.SetError))
}

// die leaves the claim behind as a crash would.
func (w *worker) die(c driver.Claim) {
	w.h.mu.Lock()
	w.h.dead[c.Owner] = true
	w.h.mu.Unlock()
	w.owner.Store(new(string))
}

// work holds the key for a while and lets it go: one loop over what can be due next, as the kernel
// has it in its watchdog.
func (w *worker) work(c driver.Claim, above driver.Token, start clock.Instant, lease time.Duration,
	token driver.Token, size uint64) {
	hd := &hold{owner: c.Owner, deadline: start.Add(validity(lease)), shared: c.Shared}
	if clock.Now() >= hd.deadline {
		w.release(c)
		return
	}
	since := time.Now()
	w.h.granted(c.Key, hd, block{first: token, last: token + driver.Token(size) - 1}, above)
	handedOver := lease != c.TTL
	until := clock.Now().Add(time.Duration(w.r.ExpFloat64() * float64(w.h.ttl) * w.h.stay))
	next := start.Add(c.TTL / 3)
	if handedOver {
		next = clock.Now()
		if w.r.Float64() < 0.3 {
			next = next.Add(lease / 2) // whoever is slow may count on the lease nevertheless
		}
	}
	die := w.h.deaths && w.r.Float64() < 0.1
	for {
		now := clock.Now()
		switch {
		case now >= hd.deadline:
			w.end(hd)
			w.releaseHeld(c, since)
			return
		case now >= until && !die:
			w.end(hd)
			if c.Shared && w.r.Float64() < 0.3 {
				w.upgrade(c)
			}
			w.releaseHeld(c, since)
			return
		case now >= until:
			w.die(c)
			return
		case now < next:
			w.sleep(max(min(next, hd.deadline, until).Sub(now), 1))
			continue
		}
		rc := c
		rc.Block = 0
		// In a rolling plan healing alone has to keep tokens rising, so from some time on no more
		// are drawn.
		if w.r.Float64() < 0.3 && (!w.h.rolling || now < start.Add(2*c.TTL)) {
			rc.Block, rc.Token = uint64(1+w.r.IntN(3)), w.clock()
		}
		if w.h.sharing > 0 && !c.Shared && w.r.Float64() < 0.3 {
			rc.Shared = true
			w.downgrading(hd)
		}
		freshRun := rc.Block > 0 && w.r.Float64() < 0.5 // else tokens are all that it wants
		rstart, rabove := clock.Now(), w.h.begun(c.Key)
		var results []driver.Result
		var err error
		w.bounded("Renew", 2, func() {
			results, err = w.q.Renew(context.Background(), []driver.Claim{rc})
		})
		state := driver.Unknown
		if err == nil {
			state = results[0].State
		}
		w.dawdle(hears)
		waiting := state == driver.Held && results[0].Waiting
		w.h.note("%s: renew %s: %v, waiting %v", c.Owner, c.Key, state, waiting)
		if w.h.rolling && state != driver.Held && w.h.healedBefore(start) {
			w.h.violate(
				"healing: %s lost %q, though no two servers lost their data without a renewal in between: %v",
				c.Owner, c.Key, state)
		}
		switch now := clock.Now(); {
		case freshRun && waiting:
			w.end(hd) // before the release leaves: nobody works under the lock from then on
			w.releaseHeld(c, since)
			return
		case state == driver.Held && now < hd.deadline && now < rstart.Add(validity(c.TTL)):
			w.h.renewed(c.Key, hd, rstart.Add(validity(c.TTL)), results[0].Token, rc.Block, rabove)
			c.Shared = rc.Shared
			next = rstart.Add(c.TTL/3 + time.Duration(w.r.IntN(1000)))
		case state == driver.Lost:
			// What is left of it is the Quorum's business.
			w.end(hd)
			return
		default:
			if freshRun { // nobody can say whether others wait
				w.end(hd)
				w.releaseHeld(c, since)
				return
			}
			next = now.Add(c.TTL/10 + time.Duration(w.r.IntN(1000)))
		}
	}
}

// upgrade asks for a claim alone that shares its key, which nobody grants.
func (w *worker) upgrade(c driver.Claim) {
	c.Shared, c.Queue = false, false
	if r, err := w.acquire(context.Background(), c); err == nil && r.State == driver.Held {
		w.h.violate("exclusion: %s shares %q and is granted it alone", c.Owner, c.Key)
	}
}

// downgrading has the hold count as one that shares the key, whatever comes of the request.
func (w *worker) downgrading(hd *hold) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	hd.shared = true
}

func (w *worker) end(hd *hold) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	hd.ended = true
}

// losses has the servers lose their data, one after the other.
func (h *history) losses(r *rand.Rand) {
	for end := time.Now().Add(h.length); time.Now().Before(end); {
		time.Sleep(h.rest() + time.Duration(r.Float64()*float64(h.ttl)))
		h.net.mu.Lock()
		s := h.net.servers[r.IntN(len(h.net.servers))]
		s.restart(forgotten)
		h.lost = clock.Now()
		h.note("server %d loses its data", s.index)
		h.net.mu.Unlock()
	}
}

// healedBefore reports whether a lock that was asked for at start had been renewed a dozen times
// before the last loss, and so was on all servers: whoever asks for it has a server that lacks it
// for a moment, and a single renewal may come just then.
func (h *history) healedBefore(start clock.Instant) bool {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.lost.Sub(start) >= 4*h.ttl
}

// faults does what goes wrong until the history's faults end, and repairs it all then.
func (h *history) faults(r *rand.Rand) {
	if h.rolling {
		h.losses(r)
		return
	}
	end := time.Now().Add(h.length)
	for {
		timer := time.NewTimer(time.Duration(r.ExpFloat64() * float64(h.pace)))
		<-timer.C
		h.net.mu.Lock()
		if time.Now().After(end) {
			break
		}
		h.fault(r)
		h.net.mu.Unlock()
	}
	h.net.weather = weather{delay: h.weather.delay}
	h.net.ambush = ambush{}
	for _, s := range h.net.servers {
		if s.down {
			s.restart(h.left(r.Float64()))
		}
		s.thaw()
		s.setClock(0, 1)
	}
	for _, c := range h.net.conns {
		c.cut = false
		c.resume()
	}
	h.net.mu.Unlock()
}

// left is what a server has of its data after a restart.
func (h *history) left(x float64) data {
	switch {
	case !h.forgets || x > 0.7:
		return kept
	case x < 0.35:
		return rolledBack
	default:
		return forgotten
	}
}

// fault does one thing to one server or connection. Called with net.mu held.
func (h *history) fault(r *rand.Rand) {
	s := h.net.servers[r.IntN(len(h.net.servers))]
	c := h.net.conns[r.IntN(len(h.net.conns))]
	x := r.Float64()
	if h.ambush.flaps && r.Float64() < 0.8 {
		c.cut = !c.cut && x < 0.5
		return
	}
	if r.Float64() < 0.3 {
		h.net.servers[r.IntN(len(h.net.servers))].save()
	}
	switch r.IntN(7) {
	case 0:
		h.crashOrRestart(s, x)
	case 1:
		h.freezeOrThaw(s)
	case 2:
		if h.cuts {
			c.cut = !c.cut
			h.note("connection %d-%d is cut: %v", c.client, c.server.index, c.cut)
		}
	case 6:
		h.forget(s, x)
	case 3:
		if h.pauses {
			h.pauseOrResume(c)
		}
	case 4:
		if h.rates {
			s.setClock(0, 0.993+0.014*x)
		}
	case 5:
		if r.Float64()*float64(400*time.Millisecond) <= float64(h.pace) {
			h.jump(s, x)
		}
	}
}

// jump sets a server's clock.
func (h *history) jump(s *server, x float64) {
	switch {
	case h.jumps && x < 0.5:
		s.setClock(time.Duration(2*x*float64(2*h.ttl)), s.rate)
		h.note("server %d jumps forward", s.index)
	case h.backJumps:
		s.setClock(-time.Duration(x*float64(h.ttl)), s.rate)
		h.note("server %d jumps back", s.index)
	}
}

func (h *history) crashOrRestart(s *server, x float64) {
	switch {
	case s.down:
		left := h.left(x)
		s.restart(left)
		h.note("server %d restarts, with data left: %v", s.index, left)
	case h.crashes:
		s.crash(x < 0.5)
		h.note("server %d crashes", s.index)
	}
}

func (h *history) freezeOrThaw(s *server) {
	switch {
	case s.frozen:
		s.thaw()
		h.note("server %d thaws", s.index)
	case h.freezes && !s.down:
		s.frozen = true
		h.note("server %d freezes", s.index)
	}
}

// forget has a server lose its data, or be set back, in the same run.
func (h *history) forget(s *server, x float64) {
	switch {
	case !h.forgets || s.down:
	case x > 0.6:
		s.flush()
		h.note("server %d loses its data in the same run", s.index)
	default:
		// It comes back, at once, with what it had a short while before.
		s.save()
		life := s.life
		time.AfterFunc(time.Duration(x*x*float64(h.ttl)), func() {
			h.net.mu.Lock()
			defer h.net.mu.Unlock()
			if s.life == life {
				s.restart(rolledBack)
				h.note("server %d is rolled back", s.index)
			}
		})
	}
}

// pauseOrResume does so with all connections of c's client: it is the process that stops.
func (h *history) pauseOrResume(c *conn) {
	hold := !c.held
	for _, o := range h.net.conns {
		switch {
		case o.client != c.client:
		case hold:
			o.pause()
		default:
			o.resume()
		}
	}
	h.note("client %d pauses: %v", c.client, hold)
}

// dice is a source of chance for several goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) throw() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.Float64()
}

// run runs the history in the bubble of t, from its start to its end: one list of steps.
func (p *plan) run(t testing.TB) *history {
	h := &history{
		plan: p, t: t,
		net:       newNetwork(p.seed, p.nodes, p.weather, p.presence),
		holds:     make(map[string][]*hold),
		valid:     make(map[string][]*hold),
		completed: make(map[string]driver.Token),
		dead:      make(map[string]bool),
		stop:      make(chan struct{}),
	}
	if *verbose {
		h.net.trace = h.note
	}
	h.net.broken, h.net.ambush, h.net.presences = p.broken, p.ambush, p.presences
	h.net.last = p.clocks != nil && p.seed%2 == 0
	for i, s := range h.net.servers {
		if i < len(p.clocks) { // a test may have changed the number of nodes
			s.setClock(p.clocks[i], 1)
		}
	}
	if p.backs() {
		h.net.applied = h.backed
	}
	counters := rand.New(rand.NewPCG(p.seed, 6))
	for _, s := range h.net.servers {
		if p.uneven > 0 {
			s.fence = driver.Token(time.Now().Add(time.Duration(
				counters.Float64() * float64(p.uneven))).UnixMicro())
		}
		s.durable = p.durable
		if p.misfit {
			// The set is in use. Servers that remember none take on what they are asked for first.
			s.member = driver.Set{Nodes: p.nodes, Quorum: p.nodes/2 + 1, Guard: p.guard}
		}
	}
	r := rand.New(rand.NewPCG(p.seed, 2))
	var quorums []*quorum.Quorum
	var done sync.WaitGroup
	for i := range p.clients {
		chance := &dice{r: rand.New(rand.NewPCG(p.seed, uint64(1000+i)))}
		conns, guard := h.net.dial(), p.guard
		nodes := backends(conns)
		for k := range min(p.clockless, len(nodes)) {
			nodes[k] = clockless{conns[k]}
		}
		if p.misfit && i == p.clients-1 {
			if guard > 0 && p.seed%2 == 0 {
				guard = p.ttl
			} else {
				nodes = nodes[:max(1, p.nodes-2)]
			}
		}
		skew := time.Duration((r.Float64()*2 - 1) * float64(guardOverTTL*4/10))
		if p.wildClients {
			skew = time.Duration((r.Float64()*2 - 1) * float64(time.Hour))
		}
		q, err := quorum.New(nodes, quorum.WithGuard(guard), quorum.WithRandom(chance.throw),
			quorum.WithClock(func() uint64 { return uint64(time.Now().Add(skew).UnixMicro()) }))
		if err != nil {
			t.Fatalf("%v\nNew: %v", p, err)
		}
		quorums = append(quorums, q)
		var workers []*worker
		for k := range p.workers {
			name := fmt.Sprintf("c%d.%d", i, k)
			w := &worker{
				h: h, q: q, name: name, skew: skew,
				r:     rand.New(rand.NewPCG(p.seed, uint64(10+10*i+k))),
				conns: conns, inbox: make(chan driver.Notice, 1),
				owner: new(atomic.Pointer[string]),
			}
			w.owner.Store(new(string))
			workers = append(workers, w)
		}
		q.Notify(func(n driver.Notice) {
			for _, w := range workers {
				if n.Owner == *w.owner.Load() {
					select {
					case w.inbox <- n:
					default:
					}
				}
			}
		})
		for _, w := range workers {
			done.Add(1)
			go func() {
				defer done.Done()
				w.run()
			}()
		}
	}
	h.faults(r)
	close(h.stop)
	done.Wait()

	// Releases that got lost are made good when the node answers: a second at most, and a round
	// trip. The quarantine does not keep a node from releasing. A notice that comes late to a
	// waiter that is gone makes for one more release, a while after it.
	time.Sleep(4*time.Second + 2*p.presence)
	h.debris(quorums)
	for _, q := range quorums {
		if err := q.Close(); err != nil {
			h.violate("Close: %v", err)
		}
	}
	return h
}

// debris checks invariants 3 and 5.
func (h *history) debris(quorums []*quorum.Quorum) {
	dead := len(h.dead)
	h.net.mu.Lock()
	for _, s := range h.net.servers {
		now := s.now()
		if s.returned {
			continue // with claims that had been released
		}
		for key, k := range s.keys {
			for _, o := range append([]simSharer{{k.owner, k.expires, k.token}}, k.sharers...) {
				if o.owner != "" && !h.dead[o.owner] {
					h.violate("debris: server %d has %q held by %s for another %v", s.index, key,
						o.owner, o.expires-now)
				}
			}
			for _, w := range k.queue {
				if !h.dead[w.owner] {
					h.violate("debris: server %d has %s in the queue of %q", s.index, w.owner, key)
				}
			}
		}
	}
	h.net.mu.Unlock()
	for i, q := range quorums {
		for _, n := range q.Status().Nodes {
			if n.Owed > 0 || n.Pending > 0 {
				h.violate(
					"debris: client %d: %s has %d calls pending and owes %d releases; %d claims were left behind",
					i, n.Name, n.Pending, n.Owed, dead)
			}
		}
		if keys, claims := q.Remembered(); claims > dead {
			h.violate("debris: client %d remembers %d keys and %d claims; %d were left behind", i,
				keys, claims, dead)
		}
		if n := q.Doubts(); n > dead {
			h.violate("debris: client %d waits for nodes to release %d claims; %d were left behind",
				i, n, dead)
		}
	}
}

// simulate runs a history in a bubble.
func simulate(t *testing.T, p *plan) (h *history) {
	t.Helper()
	for {
		var suspended time.Duration
		bubble(t, func(t *testing.T) {
			from, start := clock.Now(), time.Now()
			h = p.run(t)
			suspended = clock.Now().Sub(from) - time.Since(start)
		})
		if suspended == 0 {
			return h
		}
		// The lease clock counts that, as it has to, but the servers' clocks in the bubble did not.
		t.Logf("%v: run again, as the host was suspended for %v meanwhile", p, suspended)
	}
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

var verbose = flag.Bool("history", false, "print the history of each seed")

// campaign is a series of histories.
type campaign struct {
	first, histories uint64 // 0 histories: without end
	start            time.Time

	next, failed, served atomic.Uint64
	broken               [3]atomic.Uint64
}

// TestSimulation runs HOLDFAST_HISTORIES random histories, from HOLDFAST_SEED on; 0 histories means
// without end, and then it goes on after one that failed.
func TestSimulation(t *testing.T) {
	c := campaign{
		first:     number(t, "HOLDFAST_SEED", uint64(time.Now().UnixNano())),
		histories: number(t, "HOLDFAST_HISTORIES", defaultHistories),
		start:     time.Now(),
	}
	t.Logf("seeds from %d: HOLDFAST_SEED=%d repeats", c.first, c.first)
	for hand := range runtime.GOMAXPROCS(0) {
		t.Run(strconv.Itoa(hand), func(t *testing.T) {
			t.Parallel()
			for !t.Failed() || c.histories == 0 {
				n := c.next.Add(1) - 1
				if c.histories > 0 && n >= c.histories {
					return
				}
				// A test of its own, so that its name says the seed also when the history ends in a
				// panic.
				t.Run(fmt.Sprintf("seed=%d", c.first+n), func(t *testing.T) { c.run(t, n) })
			}
		})
	}
	t.Cleanup(func() { t.Log(c.String()) })
}

func (c *campaign) run(t *testing.T, n uint64) {
	p := newPlan(c.first + n)
	h := simulate(t, p)
	c.served.Add(uint64(h.served.Load()))
	clocks, memory, clients := p.assumptions()
	for i, kept := range []bool{clocks, memory, clients} {
		if !kept {
			c.broken[i].Add(1)
		}
	}
	if *verbose {
		t.Logf("%v\n%s", p, strings.Join(h.log, "\n"))
	}
	if len(h.violations) > 0 {
		c.failed.Add(1)
		t.Errorf("%v\n%s", p, strings.Join(h.violations, "\n"))
	}
	if c.histories > 0 {
		return
	}
	// The log of a test that does not end is not printed.
	if len(h.violations) > 0 {
		fmt.Printf("%v\n\t%s\n", p, strings.Join(h.violations, "\n\t"))
	}
	if n%1000 == 999 {
		fmt.Println(c)
	}
}

func (c *campaign) String() string {
	return fmt.Sprintf(
		"%d histories in %v, %d failed; %d acquisitions; broken assumptions: server clocks %d times, memory %d, client clocks %d",
		c.next.Load(), time.Since(c.start).Round(time.Second), c.failed.Load(), c.served.Load(),
		c.broken[0].Load(), c.broken[1].Load(), c.broken[2].Load())
}
