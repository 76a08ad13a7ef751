package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// outage is a way in which a connection fails for a while.
type outage uint8

const (
	none       outage = iota
	refused           // calls fail at once, without effect
	silent            // requests are lost
	deaf              // replies are lost
	frozen            // requests wait for the end
	flaky             // many requests and most replies are lost
	partly            // calls for some keys fail as if refused: for gates, or for all others
	lastOutage = partly
)

var (
	errRefused = errors.New("simulated: connection refused")
	errCut     = errors.New("simulated: connection cut")
	errForbids = errors.New("simulated: not allowed")
)

// wire is the way of one process to its backend: a driver.Backend whose calls are delayed, and
// whose calls and notices get lost. It keeps the rule that calls take effect in the order in which
// they were made.
type wire struct {
	h     *history
	proc  *process // nil if the wire is tested by itself
	id    int
	inner driver.Backend

	mu      sync.Mutex
	r       *rand.Rand
	queue   []*call
	last    time.Time // when the last request arrives
	outage  outage
	until   time.Time // end of the outage
	paused  time.Time // until then the process is stopped
	mended  bool
	dead    bool
	noticed time.Time // when the last notice arrives
	deaf    bool      // in this outage notices are lost, too
	gates   bool      // in this outage calls for gates fail, if calls for some keys do
	forbids bool      // in this outage calls are refused for good, if they are refused
	fades   time.Time // until then replies get slower; then comes an outage
	silence time.Duration
	lagged  time.Time // when a request last took effect after a long time on its way
	// when the release of a claim was first asked for, by owner value, while none is answered
	releases map[string]clock.Instant
}

// newWire returns the way of a process to a node.
func newWire(h *history, p *process, node int, inner driver.Backend) *wire {
	w := &wire{h: h, proc: p, inner: inner, releases: make(map[string]clock.Instant)}
	if p != nil {
		w.id = p.id
	}
	w.r = rand.New(rand.NewPCG(h.seed, uint64(100+w.id+1000*node)))
	return w
}

// call is a request on its way.
type call struct {
	wire    *wire
	kind    eventKind
	claims  []driver.Claim
	claim   driver.Claim
	sent    time.Time
	left    clock.Instant
	due     time.Time
	back    time.Duration // how long the reply takes
	lost    bool          // the request gets lost
	deaf    bool          // the reply does
	short   bool          // a waiter counts as present for shorter than at other times
	cut     bool          // and the caller is told so
	result  driver.Result
	results []driver.Result
	err     error
	done    chan struct{}
}

// fail makes the connection fail for d.
func (w *wire) fail(kind outage, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end := time.Now().Add(d); !w.mended && (w.outage == none || end.After(w.until)) {
		w.outage, w.until, w.deaf = kind, end, w.r.IntN(2) == 0
		w.gates = w.r.IntN(4) == 0
		w.forbids = w.happens(forbids, 0.5)
	}
}

// fade makes replies slow for d, and then loses requests for as long as silence.
func (w *wire) fade(d, silence time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); !w.mended && now.After(w.fades) {
		w.fades, w.silence = now.Add(d), silence
		w.h.ring.note(evFades, w.id, 0, 0, uint64(d), uint64(silence))
		time.AfterFunc(d, func() { w.fail(silent, silence) })
	}
}

// pause makes all that the process sends and gets wait for d.
func (w *wire) pause(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = time.Now().Add(d)
}

// pausing returns for how much longer the process is stopped.
func (w *wire) pausing() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, time.Until(w.paused))
}

// shortestPresence is the shortest time for which a backend counts a waiter as present.
const shortestPresence = 3 * time.Millisecond

// longestSuspend is the longest suspend in the middle of a renewal.
const longestSuspend = 20 * time.Second

// glance is how often a wait for a stopped process looks whether it runs again, which may be
// earlier than planned.
const glance = 20 * time.Millisecond

// lags reports whether a request took effect in the last d after a long time on its way.
func (w *wire) lags(d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.lagged) < d
}

// mend ends what is wrong. What is lost stays lost.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mended, w.outage = true, none
	now := time.Now()
	if w.paused.After(now) {
		w.paused = now
	}
	for _, c := range w.queue {
		if c.due.After(now) {
			c.due = now
		}
	}
	w.last, w.noticed = now, now
	go w.arrive()
}

// kill lets nothing through any more but what is about to arrive.
func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, c := range w.queue {
		c.lost = c.lost || time.Until(c.due) > lastWords
	}
}

// happens draws with a chance, and says no when nothing goes wrong any more.
func (w *wire) happens(f feature, chance float64) bool {
	return !w.mended && w.h.has(f) && w.r.Float64() < chance
}

func (w *wire) travel() time.Duration {
	d := time.Duration((0.5 + w.r.ExpFloat64()/2) * float64(w.h.delay))
	if w.happens(losses, 0.02) {
		d *= time.Duration(1 + w.r.IntN(50))
	}
	return d
}

// send draws the fate of a call, and puts it on its way.
func (w *wire) send(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return &driver.Error{Err: err}
	}
	if w.proc != nil {
		time.Sleep(w.proc.load.call())
	}
	w.mu.Lock()
	if w.dead {
		w.mu.Unlock()
		<-ctx.Done()
		return &driver.Error{Maybe: true, Err: ctx.Err()}
	}
	now := time.Now()
	if w.outage != none && !now.Before(w.until) {
		w.outage = none
	}
	if isRefused := w.refuses(c); isRefused || w.happens(losses, w.h.loss) {
		forever, onTheirWay := isRefused && w.forbids, max(0, w.last.Sub(now))
		w.mu.Unlock()
		if forever {
			return w.forbid(c, onTheirWay)
		}
		w.h.ring.note(evRefused, w.id, 0, keyIndex(c.claim.Key), uint64(c.kind), 0)
		return &driver.Error{Err: errRefused}
	}
	c.wire = w
	if w.outage == none && len(w.queue) == 0 && !now.Before(w.paused) && w.r.Float64() < w.h.quick {
		c.apply()
		w.mu.Unlock()
		return c.err
	}
	c.done = make(chan struct{})
	if c.back = w.travel(); now.Before(w.fades) && !w.mended {
		// Late, but most are still heard.
		c.back += time.Duration(
			w.r.Float64() * float64(min(max(c.ttl()/6, min(50*time.Millisecond, c.ttl()/2)),
				5*time.Second)))
	}
	c.lost = w.outage == silent || w.outage == flaky && w.r.IntN(3) == 0 ||
		w.happens(losses, w.h.loss)
	c.deaf = w.outage == deaf || w.outage == flaky && w.r.IntN(4) > 0 || w.happens(losses, w.h.loss)
	if c.claim.Queue && w.h.nodes == 1 && w.happens(presences, 0.3) {
		c.short, c.deaf = true, c.deaf || w.r.IntN(2) == 0 // this shows best if nobody hears of it
	}
	c.cut = w.happens(losses, 0.5)
	c.sent, c.left, c.due = now, clock.Now(), now.Add(w.travel())
	if w.outage == frozen && c.due.Before(w.until) {
		c.due = w.until
	}
	if c.due.Before(w.paused) {
		c.due = w.paused
	}
	if c.due.Before(w.last) {
		c.due = w.last
	}
	w.last = c.due
	w.queue = append(w.queue, c)
	after(c.due.Sub(now), w.arrive)
	w.mu.Unlock()

	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return &driver.Error{Maybe: true, Err: ctx.Err()}
	}
}

// forbid is the answer to a call that is refused for good. What is not released stays for as long
// as its lease, or for its time in the queue and a lease that begins at the end of that. Either
// begins when a request takes effect that was sent before: after onTheirWay at the latest.
func (w *wire) forbid(c *call, onTheirWay time.Duration) error {
	if k := w.h.storedBy(c.claim.Key); k != nil && c.kind == evRelease {
		k.refused.raise(w.h.now() + onTheirWay + lastWords + w.h.longest() + 2*w.h.presence)
	}
	w.h.ring.note(evRefused, w.id, 0, keyIndex(c.claim.Key), uint64(c.kind), 1)
	return &driver.Error{Permanent: true, Err: errForbids}
}

// refuses reports whether the outage makes the call fail at once. The caller holds w.mu.
func (w *wire) refuses(c *call) bool {
	switch w.outage {
	case refused:
		return true
	case partly:
		isGate := c.claim.Key != "" && strings.Contains(c.claim.Key, permitMark+gateName)
		return isGate == w.gates
	default:
		return false
	}
}

// arrive applies the requests that are due, in order.
func (w *wire) arrive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for len(w.queue) > 0 && !w.queue[0].due.After(now) {
		c := w.queue[0]
		w.queue = w.queue[1:]
		if clock.Now().Sub(c.left) >= cmp.Or(c.ttl(), w.h.longest()) {
			c.lost = true // no connection is kept for so long
		}
		if !c.lost {
			if now.Sub(c.sent) > 4*w.h.delay {
				w.lagged = now
			}
			c.apply()
			if c.kind == evRenew && w.happens(suspends, 0.005) {
				// For about as long as a lease has left when it is being renewed: the answer comes
				// after the deadline.
				d := time.Duration((0.3 + 0.7*w.r.Float64()) * float64(c.ttl()))
				go w.h.suspend(min(d, longestSuspend))
			}
		}
		if c.lost || c.deaf {
			if c.cut {
				c.err = &driver.Error{Maybe: true, Err: errCut}
			} else {
				continue
			}
		}
		after(c.back, c.deliver)
	}
}

// ttl is the shortest of the call's claims; 0 if they have none: a release need not have it.
func (c *call) ttl() time.Duration {
	ttl := c.claim.TTL
	for i, claim := range c.claims {
		if i == 0 || claim.TTL < ttl {
			ttl = claim.TTL
		}
	}
	return ttl
}

// apply makes the call take effect.
func (c *call) apply() {
	ctx := context.Background()
	switch c.kind {
	case evAcquire:
		c.result, c.err = c.wire.acquire(ctx, c.claim, c.short)
	case evRelease:
		c.result, c.err = c.wire.inner.Release(ctx, c.claim)
	case evRenew:
		c.results, c.err = c.wire.inner.Renew(ctx, c.claims)
	}
	h := c.wire.h
	if k := h.slot(c.claim.Key); k != nil && c.kind != evRenew &&
		(c.kind == evRelease || c.result.State == driver.Held) {
		if k.used.raise(h.now()); c.kind == evAcquire {
			k.taken.raise(h.now())
		}
	}
	if c.kind == evRenew {
		for i, claim := range c.claims {
			if c.err == nil {
				h.ring.note(evRenew, c.wire.id, int(c.results[i].State), keyIndex(claim.Key),
					owner(claim.Owner), uint64(claim.TTL))
			}
		}
		return
	}
	h.ring.note(c.kind, c.wire.id, int(c.result.State), keyIndex(c.claim.Key),
		owner(c.claim.Owner), uint64(c.claim.TTL))
}

// acquire asks the backend. Some backends count waiters as present for a shorter time at some
// times, by themselves or by their configuration.
func (w *wire) acquire(ctx context.Context, claim driver.Claim, short bool) (driver.Result, error) {
	asked := claim
	if short {
		asked.TTL = min(claim.TTL,
			shortestPresence+
				time.Duration(w.r.ExpFloat64()*float64(pick(w.r, w.h.hold, w.h.presence/10))))
	}
	result, err := w.inner.Acquire(ctx, asked)
	if err == nil && result.State == driver.Held && asked.TTL < claim.TTL {
		// Only the presence was meant to be shorter. Nobody has asked in between.
		results, err := w.inner.Renew(ctx, []driver.Claim{
			{Key: claim.Key, Owner: claim.Owner, TTL: claim.TTL, Shared: claim.Shared}})
		if err != nil || results[0].State != driver.Held {
			panic(fmt.Sprint("a lease ended at the moment of its grant: ", results, err))
		}
	}
	return result, err
}

// deliver brings the answer back, when the process runs.
func (c *call) deliver() {
	if rest := c.wire.pausing(); rest > 0 {
		time.AfterFunc(min(rest, glance), c.deliver)
		return
	}
	if c.claim.Key != "" {
		c.wire.strike(c.claim.Key)
	}
	close(c.done)
}

// strike makes a caller of the process give up at the moment at which it hears of the key.
func (w *wire) strike(key string) {
	if w.proc != nil {
		w.proc.moments.strike(keyIndex(key)%keyCount, 0.05)
	}
}

// Acquire makes wire a driver.Backend.
func (w *wire) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	c := &call{kind: evAcquire, claim: claim}
	if err := w.send(ctx, c); err != nil {
		if w.proc != nil {
			w.proc.attempts.fails(claim, w.h.now())
		}
		return driver.Result{}, err
	}
	return c.result, nil
}

// Renew makes wire a driver.Backend.
func (w *wire) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	c := &call{kind: evRenew, claims: append([]driver.Claim(nil), claims...)}
	if len(claims) == 1 {
		c.claim = claims[0]
	}
	if k := w.h.user(c.claim.Key); k != nil {
		w.proc.extendNow(k)
	}
	if err := w.send(ctx, c); err != nil {
		return nil, err
	}
	return c.results, nil
}

// Release makes wire a driver.Backend.
func (w *wire) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	c := &call{kind: evRelease, claim: claim}
	w.releasing(claim.Owner)
	err := w.send(ctx, c)
	w.released(claim, err)
	if err != nil {
		return driver.Result{}, err
	}
	return c.result, nil
}

// releasing notes that the release of a claim is asked for.
func (w *wire) releasing(owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.releases[owner]; !known {
		w.releases[owner] = clock.Now()
	}
}

// released notes the answer to a release, or that there was none. A clean-up that has had no answer
// for a TTL and the 5 s of a request, by the lease clock, gives up. Then the key stays for as long
// as a lease that began when the last request arrived.
func (w *wire) released(claim driver.Claim, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.releases, claim.Owner)
		return
	}
	tried := clock.Now().Sub(w.releases[claim.Owner])
	if k := w.h.storedBy(claim.Key); k != nil && tried >= claim.TTL+5*time.Second {
		k.left.raise(w.h.now() + w.h.longest() + w.h.cleanUp())
	}
}

// Shares makes wire a driver.Sharer if its backend is one.
func (w *wire) Shares() bool {
	s, ok := w.inner.(driver.Sharer)
	return ok && s.Shares()
}

// Close makes wire a driver.Backend.
func (w *wire) Close() error { return w.inner.Close() }

// listener is a function given to Notify.
type listener struct {
	mu sync.Mutex
	f  func(driver.Notice) // nil once stopped
}

// Notify makes wire a driver.Notifier.
func (w *wire) Notify(f func(driver.Notice)) (stop func()) {
	l := &listener{f: f}
	unnotify := w.inner.(driver.Notifier).Notify(func(n driver.Notice) { w.notice(l, n) })
	return func() {
		unnotify()
		l.mu.Lock()
		l.f = nil
		l.mu.Unlock()
	}
}

// notice draws the fate of a notice. It may be called while another wire is locked, so it does not
// wait for its own.
func (w *wire) notice(l *listener, n driver.Notice) {
	go func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.outage != none && time.Now().Before(w.until) && w.deaf || w.happens(badNotices, 0.3) {
			return
		}
		copies := 1
		if w.happens(badNotices, 0.3) {
			copies = 2
		}
		for range copies {
			due := time.Now().Add(w.travel())
			if w.happens(badNotices, 0.3) {
				due = due.Add(time.Duration(w.r.ExpFloat64() * float64(pick(w.r, w.h.delay*10,
					w.h.presence, w.h.longest()))))
			}
			if w.h.ordered && due.Before(w.noticed) {
				due = w.noticed
			}
			w.noticed = due
			after(time.Until(due), func() { w.tell(l, n) })
		}
	}()
}

// tell delivers a notice, when the process runs.
func (w *wire) tell(l *listener, n driver.Notice) {
	if rest := w.pausing(); rest > 0 {
		time.AfterFunc(min(rest, glance), func() { w.tell(l, n) })
		return
	}
	w.mu.Lock()
	dead := w.dead
	w.mu.Unlock()
	if dead {
		return
	}
	w.strike(n.Key)
	w.h.ring.note(evNotice, w.id, 0, keyIndex(n.Key), owner(n.Owner), uint64(n.Token))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		l.f(n)
	}
}

// after calls f in a goroutine of its own after d, at once if d is not positive: a timer that is
// due when it is set can crash the race detector (see "No timer channels" in DESIGN.md).
func after(d time.Duration, f func()) {
	if d <= 0 {
		go f()
		return
	}
	time.AfterFunc(d, f)
}
