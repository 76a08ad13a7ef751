package memhold

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

const (
	errReplyCut = constError("memhold: reply cut off")
	errLineCut  = constError("memhold: connection cut off")
)

// line is the path of a client's calls to the memory while something is wrong with it. While
// nothing is, Backend.faulty is false and calls do not use the line. faulty stays true until what
// the line holds has taken effect, so no call overtakes another.
type line struct {
	b *Backend

	mu      sync.Mutex
	faults  []*Fault // copies; Times counts down
	frozen  bool
	losing  bool
	closed  bool
	waiting []*request // in the order in which they were made
	running bool       // a goroutine applies a request
	timer   *time.Timer
	cutoff  chan struct{} // closed when the connection breaks, and then replaced
	kept    []delivery    // notices that arrive after the freeze
}

// request is a call on its way.
type request struct {
	apply func()
	due   clock.Instant
	done  chan struct{} // closed when it was applied, or never will be
	err   error         // why it never will be
}

// effect is the sum of the faults that match a call.
type effect struct {
	err          error
	cut          bool
	delay, reply time.Duration
}

func (l *line) init(b *Backend) {
	l.b = b
	l.cutoff = make(chan struct{})
}

// through sends a call along the line. It returns what apply returned, or the error of a fault.
func through[T any](ctx context.Context, l *line, calls Calls, key string,
	apply func() (T, error)) (T, error) {
	// Not named results: apply may run after this has returned.
	var result T
	var err error
	v := l.judge(calls, key)
	if fault := l.send(ctx, v, func() { result, err = apply() }); fault != nil {
		var none T
		return none, fault
	}
	return result, err
}

func (l *line) acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return through(ctx, l, Acquires, claim.Key, func() (driver.Result, error) {
		return l.b.acquire(&claim)
	})
}

func (l *line) release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return through(ctx, l, Releases, claim.Key, func() (driver.Result, error) {
		return l.b.release(&claim)
	})
}

func (l *line) list(ctx context.Context, prefix string) ([]driver.Entry, error) {
	return through(ctx, l, Inspections, "", func() ([]driver.Entry, error) {
		return l.b.list(prefix)
	})
}

func (l *line) inspect(ctx context.Context, key string) (driver.Entry, error) {
	return through(ctx, l, Inspections, key, func() (driver.Entry, error) {
		return l.b.inspect(key)
	})
}

func (l *line) identity(ctx context.Context) (string, error) {
	return through(ctx, l, Identities, "", l.b.identity)
}

// renew sends a batch. Faults of single keys take their claims out of it or spoil their results.
func (l *line) renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	whole := l.judge(Renewals, "")
	single := make([]effect, len(claims))
	// a copy: the caller may leave, and use its slice again
	sent := make([]driver.Claim, 0, len(claims))
	for i := range claims {
		v := l.judgeKey(Renewals, claims[i].Key)
		whole.delay, whole.reply = whole.delay+v.delay, whole.reply+v.reply
		if single[i] = v; v.err == nil {
			sent = append(sent, claims[i])
		}
	}
	var answers []driver.Result
	var err error
	if fault := l.send(ctx, whole, func() { answers, err = l.b.renew(sent) }); fault != nil {
		return nil, fault
	}
	if err != nil {
		return nil, err
	}
	results := make([]driver.Result, len(claims))
	for i, v := range single {
		if v.err != nil {
			results[i].Err = v.err
			continue
		}
		if v.cut {
			results[i].Err = &driver.Error{Maybe: true, Err: errReplyCut}
		} else {
			results[i] = answers[0]
		}
		answers = answers[1:]
	}
	return results, nil
}

// judge finds what happens to a call about key. key is empty if the call is about no key or
// several.
func (l *line) judge(calls Calls, key string) effect {
	return l.match(calls, func(f *Fault) bool { return f.Key == "" || f.Key == key })
}

// judgeKey finds what happens to one claim of a batch.
func (l *line) judgeKey(calls Calls, key string) effect {
	return l.match(calls, func(f *Fault) bool { return f.Key != "" && f.Key == key })
}

func (l *line) match(calls Calls, matches func(*Fault) bool) effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	var v effect
	l.faults = slices.DeleteFunc(l.faults, func(f *Fault) bool {
		if f.Calls&calls == 0 || !matches(f) {
			return false
		}
		if v.err == nil {
			v.err = f.Err
		}
		v.cut = v.cut || f.CutReply
		v.delay += f.Delay
		v.reply += f.ReplyDelay
		if f.Times > 0 {
			f.Times--
			return f.Times == 0
		}
		return false
	})
	l.update()
	return v
}

// send puts a call into the line. It waits until the call has taken effect, or never will, or ctx
// ends.
func (l *line) send(ctx context.Context, v effect, apply func()) error {
	if v.err != nil {
		return v.err
	}
	r := &request{apply: apply, due: clock.Now().Add(v.delay), done: make(chan struct{})}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return errClosed()
	}
	cutoff := l.cutoff
	l.waiting = append(l.waiting, r)
	// The last fault may have ended since the caller looked at faulty.
	l.update()
	l.run()
	l.mu.Unlock()

	select {
	case <-r.done:
	case <-ctx.Done():
		return &driver.Error{Maybe: true, Err: ctx.Err()}
	}
	if r.err != nil {
		return r.err
	}
	if v.reply > 0 {
		arrival := time.NewTimer(v.reply)
		defer arrival.Stop()
		select {
		case <-arrival.C:
		case <-ctx.Done():
			return &driver.Error{Maybe: true, Err: ctx.Err()}
		case <-cutoff:
			return &driver.Error{Maybe: true, Err: errLineCut}
		}
	}
	if v.cut {
		return &driver.Error{Maybe: true, Err: errReplyCut}
	}
	return nil
}

// run applies the requests that are due, unless another goroutine does. It is called with l.mu
// held. It unlocks l.mu while it applies a request, because that delivers notices.
func (l *line) run() {
	for !l.running && !l.frozen && len(l.waiting) > 0 {
		r := l.waiting[0]
		if wait := r.due.Sub(clock.Now()); wait > 0 {
			if l.timer == nil {
				l.timer = time.AfterFunc(wait, l.wake)
			} else {
				l.timer.Reset(wait)
			}
			break
		}
		// Not slices.Delete: after a thaw it would move what is left once for every request.
		l.waiting[0], l.waiting = nil, l.waiting[1:]
		l.running = true
		l.mu.Unlock()
		r.apply()
		close(r.done)
		l.mu.Lock()
		l.running = false
	}
	l.update()
}

func (l *line) wake() {
	l.mu.Lock()
	l.run()
	l.mu.Unlock()
}

// update sets whether calls and notices have to come here. Called with l.mu held.
func (l *line) update() {
	l.b.faulty.Store(!l.closed && (l.frozen || l.losing || l.running ||
		len(l.faults) > 0 || len(l.waiting) > 0 || len(l.kept) > 0))
}

func (l *line) inject(fault Fault) (remove func()) {
	if fault.Calls == 0 {
		fault.Calls = AllCalls
	}
	if fault.Err != nil {
		fault.Err = asError(fault.Err)
	}
	f := &fault
	l.mu.Lock()
	l.faults = append(l.faults, f)
	l.update()
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		l.faults = slices.DeleteFunc(l.faults, func(other *Fault) bool { return other == f })
		l.update()
		l.mu.Unlock()
	}
}

func (l *line) clear() {
	l.mu.Lock()
	l.faults, l.losing = nil, false
	l.update()
	l.mu.Unlock()
}

func (l *line) freeze() {
	l.mu.Lock()
	l.frozen = true
	l.update()
	l.mu.Unlock()
}

func (l *line) thaw(drop bool) {
	l.mu.Lock()
	l.frozen = false
	if drop {
		l.cutLocked()
	}
	kept := len(l.kept) > 0
	l.run()
	l.mu.Unlock()
	if kept {
		// The goroutine that delivers sends them, so that no later notice overtakes those that were
		// kept.
		m := l.b.memory
		m.mu.Lock()
		m.outbox = append(m.outbox, delivery{client: l.b})
		m.unlock()
	}
}

func (l *line) loseNotices(lose bool) {
	l.mu.Lock()
	l.losing = lose
	l.update()
	l.mu.Unlock()
}

func (l *line) hanging() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// keep reports whether the line has taken the notice: to lose it, or to keep it until the freeze
// ends.
func (l *line) keep(d delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.losing || l.closed {
		return true
	}
	if l.frozen || len(l.kept) > 0 {
		l.kept = append(l.kept, d)
		l.update()
		return true
	}
	return false
}

// unkeep returns the notices that were kept, unless they have to wait again.
func (l *line) unkeep() []delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen {
		return nil
	}
	kept := l.kept
	l.kept = nil
	l.update()
	return kept
}

// cut breaks the connection: what is on its way is lost.
func (l *line) cut() {
	l.mu.Lock()
	l.cutLocked()
	l.mu.Unlock()
}

func (l *line) cutLocked() {
	for _, r := range l.waiting {
		r.err = &driver.Error{Maybe: true, Err: errLineCut}
		close(r.done)
	}
	l.waiting, l.kept = nil, nil
	close(l.cutoff)
	l.cutoff = make(chan struct{})
	if l.timer != nil {
		l.timer.Stop()
	}
	l.update()
}

func (l *line) close() {
	l.mu.Lock()
	l.closed = true
	l.cutLocked()
	l.mu.Unlock()
}
