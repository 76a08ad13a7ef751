package simulate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
)

// feature is one kind of thing that a history may draw. The features of a plan are drawn from its
// seed. HOLDFAST_WITHOUT switches some off, and so does the search for a smaller history that fails
// in the same way.
type feature uint64

const (
	mixedTTL    feature = 1 << iota // acquisitions of two or three TTLs
	unrenewed                       // WithoutRenewal for some
	maxHolds                        // WithMaxHold for some
	cancels                         // contexts that end after 50 us to 2 ms
	patience                        // contexts that end after up to two TTLs
	tries                           // TryAcquire
	extends                         // Extend
	nests                           // reentrancy
	oddReleases                     // with a context that has ended, twice, by two at once
	nilReleases                     // Release(nil)
	closes                          // Close, and another Locker after it
	waitPanics                      // a Waiting hook that panics, and whose panic is recovered
	wildPanics                      // any hook may panic
	hookBlocks                      // hooks that block for a while
	hookCalls                       // hooks that release, try, and close
	losses                          // requests and replies that are lost, cut or refused
	outages                         // of the connection of one process, or of all
	badNotices                      // late, lost, repeated, out of order
	pauses                          // a whole process stops, and its timers do not
	suspends                        // all processes stop, and their timers with them
	evictions                       // a key is deleted by hand: breaks an assumption
	// callers that give up in the very moment in which something comes for them
	giveUps
	// a backend whose presence differs from one request to the next
	presences
	badContexts // contexts that panic when they are asked, sooner or later
	shared      // WithShared for half of all, and Downgrade
	semaphores  // WithPermits for some keys
	rollouts    // processes that know of fewer permits than others
	deaths      // processes that end without Close
	fair        // in a plan with semaphores no faults: then nobody waits for long
	sets        // AcquireAll and TryAcquireAll of several keys
	forbids     // backends that refuse for good
	longTTLs    // TTLs of up to an hour
	libraries   // on Redis, clients of the application: requests that they give up arrive late
	allFeatures = 1<<iota - 1

	// callers that give up, for whatever reason
	impatience = cancels | patience | giveUps | badContexts | closes
)

var featureNames = []string{
	"mixedTTL", "unrenewed", "maxHolds", "cancels", "patience", "tries", "extends", "nests",
	"oddReleases", "nilReleases", "closes",
	"waitPanics", "wildPanics", "hookBlocks", "hookCalls", "losses", "outages", "badNotices",
	"pauses", "suspends", "evictions",
	"giveUps", "presences", "badContexts", "shared", "semaphores", "rollouts",
	"deaths", "fair", "sets", "forbids", "longTTLs", "libraries",
}

// featuresNamed reads a list of names, separated by commas.
func featuresNamed(list string) (set feature, err error) {
	for name := range strings.SplitSeq(list, ",") {
		found := name == ""
		for i, n := range featureNames {
			if n == name {
				set |= 1 << i
				found = true
			}
		}
		if !found {
			return 0, fmt.Errorf("no feature %q: there are %s", name,
				strings.Join(featureNames, ", "))
		}
	}
	return set, nil
}

func (f feature) String() string {
	var names []string
	for i, n := range featureNames {
		if f&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ",")
}

// plan is what a history does, drawn from its seed.
type plan struct {
	seed      uint64
	features  feature
	nodes     int  // 1: no quorum
	redis     bool // a model of Redis
	processes int
	workers   int // of each process
	steps     int // of each worker, at most
	keys      int
	permits   []int // of each key; 0: it is a lock
	ttls      []time.Duration
	turns     int
	span      time.Duration
	presence  time.Duration
	length    time.Duration // until the faults end, at most
	delay     time.Duration // of a request, and of a reply: the mean
	gust      time.Duration // between two faults that last: the mean
	quick     float64       // how often both take no time
	loss      float64       // how often a request or reply is lost
	think     time.Duration // between two acquisitions: the mean
	hold      time.Duration // of a lock: the mean
	stays     float64       // how often it is kept until after its deadline
	idle      float64       // how often a worker thinks at all
	ordered   bool          // notices arrive in order
}

func (p *plan) has(f feature) bool { return p.features&f != 0 }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// newPlan draws a plan, with some features for sure.
func newPlan(seed uint64, with feature) *plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &plan{
		seed:      seed,
		processes: pick(r, 1, 2, 2, 2, 3, 4),
		workers:   pick(r, 1, 2, 4, 6, 12),
		keys:      pick(r, 1, 1, 1, 2, 3),
		turns:     pick(r, 1, 3, 10, 64, 64, 64, 1000),
		span: pick(r, time.Millisecond, 50*time.Millisecond, 50*time.Millisecond,
			time.Second, time.Minute),
		presence: pick(r, 3*time.Millisecond, 30*time.Millisecond, 300*time.Millisecond,
			3*time.Second, 10*time.Second),
		delay: pick(r, 20*time.Microsecond, 100*time.Microsecond, 100*time.Microsecond,
			300*time.Microsecond, time.Millisecond, 5*time.Millisecond),
		quick: pick(r, 0, 0.3, 0.9),
		think: pick(r, 50*time.Microsecond, 500*time.Microsecond, 500*time.Microsecond,
			20*time.Millisecond, 200*time.Millisecond),
		hold: pick(r, 50*time.Microsecond, 50*time.Microsecond, 500*time.Microsecond,
			5*time.Millisecond, 100*time.Millisecond),
		stays:   pick(r, 0, 0, 0.01, 0.03, 0.3),
		idle:    pick(r, 0.02, 0.1, 0.3, 1),
		ordered: r.IntN(2) == 0,
	}
	short := []time.Duration{30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond,
		time.Second}
	long := []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second}
	if r.IntN(2) == 0 {
		short, long = long, short
	}
	p.ttls = []time.Duration{pick(r, short...), pick(r, long...),
		pick(r, append(short, long...)...)}
	if r.IntN(2) == 0 {
		p.crowd(r)
	}
	p.length = time.Duration((0.5 + 2*r.Float64()) * float64(time.Second))
	if r.IntN(3) == 0 {
		p.length *= 8
	}
	p.gust = pick(r, 5*time.Millisecond, 30*time.Millisecond, p.length/20)
	p.steps = 5000 / (p.processes * p.workers)
	p.loss = pick(r, 0.002, 0.02, 0.2, 0.5) * r.Float64()
	likely := map[feature]float64{
		mixedTTL: 0.5, cancels: 0.5, tries: 0.5, oddReleases: 0.4, losses: 0.4, outages: 0.5,
		badNotices:  0.4,
		nilReleases: 0.15, waitPanics: 0.1, wildPanics: 0.15, evictions: 0.1, suspends: 0.3,
		badContexts: 0.15, semaphores: 0.4, rollouts: 0.5,
		deaths: 0.15, fair: 0.3, sets: 0.3, forbids: 0.1, longTTLs: 0.05, libraries: 0.6,
		// only if HOLDFAST_WITH says so: a backend must not do this, see docs/simulation.md
		presences: -1,
	}
	for i := range featureNames {
		chance := likely[1<<i]
		if chance == 0 {
			chance = 0.3
		}
		if r.Float64() < chance {
			p.features |= 1 << i
		}
	}
	p.features |= with
	p.queues()
	p.lateReleases()
	p.manyKeys()
	p.sizes()
	p.stack()
	p.fairWeather()
	if p.redis || p.nodes > 1 {
		p.features &^= badContexts // there a goroutine may panic that nobody recovers
	}
	p.lengthen()
	p.without(0)
	return p
}

// stack draws what the Lockers stand on, unless HOLDFAST_STACK says it.
func (p *plan) stack() {
	r := rand.New(rand.NewPCG(p.seed, 3))
	kind := pick(r, "memory", "memory", "memory", "memory", "quorum", "redis")
	if stackKind != "" {
		kind = stackKind
	}
	p.nodes = 1
	switch kind {
	case "quorum":
		p.nodes = pick(r, 3, 5)
		p.delay = min(p.delay, 300*time.Microsecond)
		for i := range p.ttls {
			p.ttls[i] = max(p.ttls[i], 300*time.Millisecond)
		}
	case "redis":
		p.redis = true
		p.presence = 3 * time.Second
		p.steps = max(30, p.steps/4) // Lua takes its time
		shortest := 100 * time.Millisecond
		if p.has(libraries) && r.IntN(3) > 0 {
			p.nodes = 3
			p.delay = min(p.delay, 300*time.Microsecond)
			p.steps = max(10, p.steps/12)
			shortest = 300 * time.Millisecond
			if r.IntN(2) == 0 {
				p.compete(r)
			}
		}
		for i := range p.ttls {
			p.ttls[i] = max(p.ttls[i], shortest)
		}
	}
}

// compete makes it a plan of processes that wait for each other for locks. Over several nodes they
// give back what they got where others are ahead, and ask again.
func (p *plan) compete(r *rand.Rand) {
	p.features &^= semaphores | rollouts
	p.processes = max(p.processes, 3)
	p.workers = min(p.workers, 4)
	p.keys = min(p.keys, 2)
	p.permits = make([]int, p.keys)
	p.turns = pick(r, 1, 3)
	p.hold = pick(r, 500*time.Microsecond, 5*time.Millisecond, 20*time.Millisecond)
	p.think = min(p.think, 20*time.Millisecond)
	p.steps = max(10, 150/(p.processes*p.workers))
}

// queues makes it a plan of processes that wait for each other at the backend, if the backend
// changes its presence.
func (p *plan) queues() {
	if !p.has(presences) {
		return
	}
	r := rand.New(rand.NewPCG(p.seed, 4))
	p.processes = max(p.processes, 2+r.IntN(2))
	p.presence = pick(r, 100*time.Millisecond, 300*time.Millisecond, 3*time.Second)
	p.hold = pick(r, 5*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond)
	p.turns = pick(r, 1, 3, 10)
	p.quick = 0
}

// lateReleases, with a chance, makes it a plan of holders that release after a maximum hold and a
// suspend, when their lease has ended, while others wait for a turn of the same run.
func (p *plan) lateReleases() {
	r := rand.New(rand.NewPCG(p.seed, 5))
	if !p.has(suspends) || !p.has(maxHolds) || r.IntN(2) == 0 {
		return
	}
	p.workers = max(p.workers, 4)
	p.keys = 1
	p.turns, p.span = max(p.turns, 10), time.Minute
	p.ttls[0] = pick(r, 100*time.Millisecond, 300*time.Millisecond)
	p.stays = max(p.stays, 0.03)
}

// manyKeys, with a chance, gives a plan with sets more keys.
func (p *plan) manyKeys() {
	if p.has(sets) {
		r := rand.New(rand.NewPCG(p.seed, 9))
		p.keys = max(p.keys, pick(r, 2, 3, 3, 6))
	}
}

// lengthen makes one TTL very long, if the plan has such. Long TTLs, and backends that refuse for
// good, are only on a plain memory. If a key may be left to its TTL, that is shorter. The presence
// is not short: otherwise waiters would ask millions of times.
func (p *plan) lengthen() {
	if p.redis || p.nodes > 1 {
		p.features &^= longTTLs | forbids
	}
	if !p.has(longTTLs) {
		return
	}
	long := time.Hour
	if p.has(deaths | forbids | closes | evictions) {
		long = 10 * time.Minute
	}
	p.ttls[rand.New(rand.NewPCG(p.seed, 10)).IntN(len(p.ttls))] = long
	p.presence = max(p.presence, 3*time.Second)
}

// sizes draws which keys are semaphores, if any is, and of how many permits. It gives the plan
// enough goroutines that ask for them.
func (p *plan) sizes() {
	p.permits = make([]int, p.keys)
	if !p.has(semaphores) {
		return
	}
	r := rand.New(rand.NewPCG(p.seed, 6))
	for i := range p.permits {
		if i == 0 || r.IntN(2) == 0 {
			p.permits[i] = 2 + r.IntN(3)
		}
	}
	p.processes = max(p.processes, pick(r, 1, 2, 3, 4))
	p.workers = max(p.workers, pick(r, 1, 3, 5))
	p.steps = 5000 / (p.processes * p.workers)
}

// fairWeather makes a plan with fair one without faults, in which more goroutines ask than there
// are permits, and some hold long.
func (p *plan) fairWeather() {
	if !p.has(fair) {
		return
	}
	if !p.has(semaphores) {
		p.features &^= fair
		return
	}
	r := rand.New(rand.NewPCG(p.seed, 8))
	p.features &^= losses | outages | badNotices | presences | pauses | suspends | evictions |
		deaths | forbids | libraries
	if r.IntN(2) == 0 {
		p.features &^= impatience
	}
	p.processes, p.workers = max(p.processes, 2), max(p.workers, 4)
	p.steps = 5000 / (p.processes * p.workers)
	p.think = min(p.think, 20*time.Millisecond)
	p.span = pick(r, min(p.span, time.Second), time.Millisecond, 50*time.Millisecond)
	p.hold = pick(r, p.hold, 20*time.Millisecond, 200*time.Millisecond)
	if r.IntN(4) > 0 {
		p.presence, p.delay = max(p.presence, time.Second), min(p.delay, 300*time.Microsecond)
	}
}

// permitsOf returns how many permits a key has; 0: it is a lock.
func (p *plan) permitsOf(key int) int {
	if !p.has(semaphores) {
		return 0
	}
	return p.permits[key]
}

// without switches features off.
func (p *plan) without(features feature) {
	if p.features &^= features; !p.has(mixedTTL) {
		p.ttls = p.ttls[:1]
	}
}

// crowd makes it a plan of many short turns.
func (p *plan) crowd(r *rand.Rand) {
	p.workers = pick(r, 4, 6, 12)
	p.keys = 1
	p.turns = pick(r, 10, 64, 64, 1000)
	p.delay = min(p.delay, pick(r, 100*time.Microsecond, 100*time.Microsecond, time.Millisecond))
	p.think = min(p.think, 500*time.Microsecond)
	p.hold = min(p.hold, 500*time.Microsecond)
	p.idle = min(p.idle, 0.1)
}

// longest is the longest TTL.
func (p *plan) longest() (ttl time.Duration) {
	for _, t := range p.ttls {
		ttl = max(ttl, t)
	}
	return ttl
}

// request is the longest that the kernel waits for one answer.
func (p *plan) request() time.Duration {
	return min(max(p.longest()/6, 50*time.Millisecond), 5*time.Second)
}

// cleanUp returns for how long after the end of the faults the backend may still have what nobody
// wants any more: a request that hangs, the longest pause before the next, and some round trips.
func (p *plan) cleanUp() time.Duration {
	d := p.request() + time.Second + 20*p.delay + 100*time.Millisecond
	if p.redis {
		d += 10 * time.Second // a connection is given up after five, and another one made
	}
	if p.nodes > 1 {
		// A quorum repeats what a node did not confirm. A notice that comes late to a waiter that
		// is gone causes one more request.
		d += 4*time.Second + 2*min(p.presence, p.longest())
	}
	return d
}

// serve returns within how long after the end of the faults every waiter has been served, or has
// given up: what is left behind is cleaned up, one request hangs for each of two leaders, a poll
// finds a grant whose notice was lost.
func (p *plan) serve() time.Duration {
	d := p.cleanUp() + p.request() + 2*time.Second + p.blocks()
	if p.has(sets) { // sets wait for one key after the other, and for other sets that do so
		d += time.Duration(p.keys) * (p.request() + 2*time.Second)
	}
	return d
}

// blocks is the longest that a hook blocks.
func (p *plan) blocks() time.Duration {
	if p.has(hookBlocks) {
		return longestBlock
	}
	return 0
}

// closing is how long Close takes at most.
func (p *plan) closing() time.Duration { return 5*time.Second + p.request() + p.blocks() }

func (p *plan) String() string {
	broken := "none"
	if p.has(evictions) {
		broken = "a key stays until it is released or its lease ends"
	}
	kind := "memory"
	switch {
	case p.redis && p.nodes > 1:
		kind = fmt.Sprintf("a quorum of %d Redis servers", p.nodes)
	case p.redis:
		kind = "Redis"
	case p.nodes > 1:
		kind = fmt.Sprintf("a quorum of %d", p.nodes)
	}
	return fmt.Sprintf("seed %d: %s, %d processes of %d workers, %d keys of %v permits, TTLs %v, "+
		"cohorts of %d turns and %v, presence %v, delay %v, loss %.3f, think %v, hold %v, for %v; "+
		"%v; assumptions broken: %s",
		p.seed, kind, p.processes, p.workers, p.keys, p.permits, p.ttls, p.turns, p.span,
		p.presence, p.delay, p.loss, p.think, p.hold, p.length, p.features, broken)
}

// variant is a set of options of an acquisition.
type variant struct {
	options []holdfast.AcquireOption
	name    string
	ttl     time.Duration
	shared  bool
}

// variants are all that the plan's acquisitions choose from.
func (p *plan) variants() (all []variant) {
	for _, ttl := range p.ttls {
		add := func(name string, options ...holdfast.AcquireOption) {
			options = append(options, holdfast.WithTTL(ttl))
			all = append(all, variant{options: options, name: ttl.String() + name, ttl: ttl})
			if p.has(shared) {
				options = append(options[:len(options):len(options)], holdfast.WithShared())
				all = append(all,
					variant{options: options, name: ttl.String() + name + " shared", ttl: ttl,
						shared: true})
			}
		}
		add("")
		add("")
		if p.has(unrenewed) {
			add(" unrenewed", holdfast.WithoutRenewal())
		}
		if p.has(maxHolds) {
			add(" bounded", holdfast.WithMaxHold(2*ttl))
		}
	}
	return all
}
