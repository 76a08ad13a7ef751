package node

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// errNoRight is a refusal without effect, and the node will not be asked again.
var errNoRight = &driver.Error{Permanent: true, Err: errForGood.Err}

// order is a random order of calls for one claim at one node, and of what happens to them. It does
// what [Call.Run] and a round of a Quorum do, step by step, so anything may come between two steps
// of a call. All is done by one goroutine, in no time.
type order struct {
	*rand.Rand
	server
	node   *Node
	doubts atomic.Int64
	claim  *History
	other  *History // of another claim of the key: calls wait for its turn to end
	known  bool     // the claim was not forgotten since it was asked for or released
	queues bool     // the claim queues at the node

	busy  *Call // whose turn it is
	stage stage
	asked *request // of that call; nil before it is sent

	attempt int     // counts how often the claim was asked for
	parts   []*part // in the releases of this attempt
	freed   bool    // a release has ended a grant at the node since the claim ended
	owed    bool    // a release was made, and neither it nor a later call was answered
	blurred bool    // a release need not know what has become of the claim
	banned  bool    // a call has failed for good, and so may have left the claim behind
	calm    bool    // the faults are over

	seen seen
	log  []string
	bad  string // what is wrong; "" if nothing is
}

// server is what the node is in truth. Requests take effect in the order in which they were sent,
// if they do.
type server struct {
	has  driver.State // Held, Busy if the claim is in the queue, or Lost
	sent []*request   // those that may yet take effect

	hangs bool // they do so later
}

// request is a call on its way.
type request struct {
	*Call
	done   bool // it has arrived, and
	answer driver.State
	err    error // of a node that will not be asked again
}

// part is the node's part in a release of the claim.
type part struct {
	call    *Call        // nil if there is none
	leftOut bool         // the node is down, and is asked if it is needed
	says    driver.State // Unknown: nothing
}

// stage is how far the call has come whose turn it is.
type stage uint8

const (
	turnCame stage = iota
	admitted       // it is not too late
	onItsWay
)

// seen counts what has occurred.
type seen map[string]int

// sights are what has to occur, each once in 2000 orders. The first are what a release says, and
// whether the node held the claim until then.
var sights = []string{
	"held, held: true", "lost, held: false", "busy, held: false", "unknown, held: true",
	"unknown, held: false", "queued", "overtaken", "down", "needless", "probe", "left out",
	"left out, then asked", "pending, then made", "no answer", "late effect", "refused",
	"failed for good", "released again", "two releases at once", "forgotten, then released",
	"asked for again while a release is under way", "released while one is under way",
}

func newOrder(seed uint64, seen seen) *order {
	o := &order{Rand: rand.New(rand.NewPCG(seed, 0)), seen: seen}
	o.node = New(NewGroup(Config{Closed: errGone}), 0, "node", nil, 0)
	o.node.lastErr = errNever
	o.has = driver.Lost
	o.queues = o.oneOf(2)
	key := new(Key)
	o.claim, o.other = o.history(key), o.history(key)
	return o
}

// history returns the history of a claim of which nothing was sent.
func (o *order) history(key *Key) *History {
	h := NewHistory(new(sync.Mutex), nil, &o.doubts)
	h.Key = key
	return &h
}

// oneOf reports true once in n times.
func (o *order) oneOf(n int) bool { return o.IntN(n) == 0 }

// fault reports true once in n times until the faults are over.
func (o *order) fault(n int) bool { return !o.calm && o.oneOf(n) }

func (o *order) note(format string, args ...any) {
	o.log = append(o.log, fmt.Sprintf(format, args...))
}

func (o *order) wrong(what string) {
	if o.bad == "" {
		o.bad = what
		o.note("wrong: %s", what)
	}
}

// steps are what may happen next, each as often as its number says. What can not happen now does
// nothing.
var steps = []struct {
	often int
	step  func(*order)
}{
	{3, (*order).ask},
	{3, (*order).release},
	{1, (*order).retreat},
	{1, (*order).heal},
	{2, (*order).repeatPending},
	{1, (*order).need},
	{1, (*order).askForOther},
	{1, (*order).lose},
	{1, (*order).grant},
	{1, (*order).hang},
	{6, (*order).arrive},
	{14, (*order).proceed},
}

// wheel has each step as often as it comes.
var wheel = func() (wheel []func(*order)) {
	for _, s := range steps {
		wheel = append(wheel, slices.Repeat([]func(*order){s.step}, s.often)...)
	}
	return wheel
}()

// ask has the claim asked for, or asked for again. The node may be left out.
func (o *order) ask() {
	if o.known && !o.claim.Over() && !o.queues && !o.oneOf(4) {
		return
	}
	if o.releasing() {
		o.seen["asked for again while a release is under way"]++
	}
	if o.enter() {
		o.has = driver.Lost // what a release that failed for good has left has expired
	}
	o.claim.Begin()
	o.attempt++
	o.parts = nil
	o.note("the claim is asked for, attempt %d", o.attempt)
	if o.oneOf(3) {
		o.note("the node is left out")
		return
	}
	o.push(Acquiring, o.claim, false)
}

// enter has a claim that was forgotten known again. It reports whether it was.
func (o *order) enter() (forgotten bool) {
	if o.known {
		return false
	}
	o.claim, o.known = o.history(o.claim.Key), true
	return true
}

// release has the claim released, or released again.
func (o *order) release() {
	if o.attempt == 0 || !o.known && !o.oneOf(8) {
		return
	}
	if o.enter() {
		o.seen["forgotten, then released"]++
		o.claim.Touch(Only(0)) // it may be there
	}
	again := o.claim.Over()
	if again {
		o.spotRepetition()
	} else {
		if o.releasing() {
			o.seen["released while one is under way"]++
		}
		o.parts, o.freed, o.blurred = nil, false, o.blurred && o.owed || o.releasing()
	}
	o.claim.End()
	p := new(part)
	o.note("the claim is released, again: %v", again)
	o.parts = append(o.parts, p)
	o.launch(p, true, again)
}

// releasing reports whether a release of the claim is under way.
func (o *order) releasing() bool {
	return o.busy != nil && o.busy.History == o.claim && o.busy.Op == Releasing
}

// spotRepetition counts a release that repeats others.
func (o *order) spotRepetition() {
	o.seen["released again"]++
	if slices.ContainsFunc(o.parts, func(p *part) bool { return p.call != nil }) {
		o.seen["two releases at once"]++
	}
}

// launch has the node asked for its part in a release, as a round does.
func (o *order) launch(p *part, first, again bool) {
	h := o.claim
	p.leftOut = false
	switch touched := h.Touched().Has(0); {
	case !touched && !first:
		o.say(p, h.Gone(0))
	case !touched && again: // the caller learns that the claim is gone, and not more
	case !touched:
		o.say(p, driver.Lost)
	case first && o.fault(4):
		p.leftOut = !h.Released().Has(0)
		o.note("the node is down, left out: %v", p.leftOut)
		h.Pend(0)
	default:
		p.call = o.push(Releasing, h, !first)
	}
	o.tidy()
}

// need has a node asked that was left out of a release.
func (o *order) need() {
	for _, p := range o.parts {
		if p.leftOut {
			o.known = true // as the round knows it
			o.note("the node is needed")
			o.seen["left out, then asked"]++
			o.launch(p, false, false)
			return
		}
	}
}

// live reports whether the claim is asked for and not released.
func (o *order) live() bool { return o.known && !o.claim.Over() }

// retreat has the claim give up its grant at the node, and perhaps queue there, while it waits for
// the others.
func (o *order) retreat() {
	if !o.live() || !o.queues || o.claim.Touched() == 0 {
		return
	}
	o.note("the claim retreats")
	o.push(Releasing, o.claim, false)
	if o.oneOf(2) {
		o.push(Acquiring, o.claim, false)
	}
}

// heal has the node asked for a claim that it does not have.
func (o *order) heal() {
	if o.live() && o.oneOf(3) {
		o.note("the node is healed")
		o.push(Acquiring, o.claim, false)
	}
}

// repeatPending makes a pending release.
func (o *order) repeatPending() {
	if o.known && o.claim.pending.Has(0) {
		o.note("the pending release is made")
		o.seen["pending, then made"]++
		o.push(Releasing, o.claim, false)
	}
}

// askForOther makes a call that has those of the claim wait for their turn.
func (o *order) askForOther() {
	if !o.other.Busy() {
		o.note("the other claim is asked for")
		o.push(Acquiring, o.other, false)
	}
}

// lose has the node lose the claim.
func (o *order) lose() {
	if o.has != driver.Lost && o.oneOf(2) {
		o.has = driver.Lost
		o.note("the node loses the claim")
	}
}

// grant has the node grant the claim that is in its queue.
func (o *order) grant() {
	if o.has == driver.Busy {
		o.has = driver.Held
		o.note("the node grants the claim from its queue")
	}
}

// hang has the node hang, or go on.
func (o *order) hang() {
	o.hangs = !o.hangs
	o.note("the node hangs: %v", o.hangs)
}

// push makes a call.
func (o *order) push(op Operation, h *History, forced bool) *Call {
	c := &Call{Node: o.node, Op: op, Claim: &driver.Claim{}, History: h, Forced: forced,
		Probe: o.fault(8)}
	if c.Push() {
		o.busy = c
	} else {
		o.seen["queued"]++
	}
	o.owed = o.owed || op == Releasing
	if h.pending.Has(0) {
		o.wrong("a release is pending though a call was made after it")
	}
	return c
}

// proceed has the call whose turn it is go on.
func (o *order) proceed() {
	switch c := o.busy; {
	case c == nil:
	case o.stage == turnCame:
		o.comeTooLate()
	case o.stage == onItsWay:
		o.answer()
	case c.needless():
		o.note("%s is needless", name(c))
		o.seen["needless"]++
		o.end(driver.Lost, nil)
	default:
		if c.Op == Releasing && o.claim.Touched() == 0 {
			o.seen["probe"]++
		}
		o.asked, o.stage = &request{Call: c}, onItsWay
		o.sent = append(o.sent, o.asked)
		o.note("%s is sent", name(c))
	}
}

// comeTooLate ends the call whose turn has come, if it must not be made.
func (o *order) comeTooLate() {
	c, down := o.busy, o.fault(4)
	o.node.breaker.down = down
	err := c.late()
	o.stage, c.unmade = admitted, err != nil
	switch {
	case !c.unmade:
		return
	case down:
		o.seen["down"]++
	default:
		o.seen["overtaken"]++
	}
	o.end(driver.Unknown, err)
}

// name is what the log calls a call.
func name(c *Call) string {
	if c.Op == Releasing {
		return fmt.Sprint("release ", c.number)
	}
	return fmt.Sprint("acquisition ", c.number)
}

// answer ends the call under way, if its time has come.
func (o *order) answer() {
	q := o.asked
	switch {
	case o.hangs && o.oneOf(2), o.fault(8):
		if !o.hangs && o.oneOf(2) {
			o.drop(q)
		}
		o.seen["no answer"]++
		o.end(driver.Unknown, errBroken)
	case q.done:
		o.end(q.answer, q.err)
	case o.fault(8):
		o.drop(q)
		o.seen["refused"]++
		o.end(driver.Unknown, errNever)
	}
}

// drop has a request never arrive.
func (o *order) drop(q *request) {
	if i := slices.Index(o.sent, q); i >= 0 {
		o.sent = slices.Delete(o.sent, i, i+1)
		o.note("%s does not arrive", name(q.Call))
	}
}

// arrive has the next request arrive.
func (o *order) arrive() {
	if o.hangs || len(o.sent) == 0 {
		return
	}
	q := o.sent[0]
	o.sent, q.done = o.sent[1:], true
	if q.History != o.claim {
		return
	}
	if q != o.asked {
		o.seen["late effect"]++
	}
	if o.fault(16) {
		q.err = []error{errForGood, errForGood, errNoRight}[o.IntN(3)]
		o.banned = true
		o.seen["failed for good"]++
	}
	if q.err == nil || Maybe(q.err) && o.oneOf(2) {
		o.apply(q)
	}
	o.note("%s arrives: %v, %v", name(q.Call), q.answer, q.err)
}

// apply has a request take effect.
func (o *order) apply(q *request) {
	if q.Op == Acquiring {
		q.answer = o.acquire()
		return
	}
	if q.answer = o.has; o.has == driver.Held {
		o.free()
	}
	o.has = driver.Lost
}

// acquire returns what the node says when the claim is asked for.
func (o *order) acquire() driver.State {
	switch {
	case o.has == driver.Held:
	case !o.oneOf(3):
		o.has = driver.Held
	case o.queues:
		o.has = driver.Busy
	}
	if o.has == driver.Held {
		return driver.Held
	}
	return driver.Busy
}

// free notes that a release has ended a grant, which no release may have denied.
func (o *order) free() {
	o.freed = true
	for _, p := range o.parts {
		if p.says == driver.Lost || p.says == driver.Busy {
			o.wrong("a release said that the node does not hold the claim, and it did")
		}
	}
}

// end ends the call whose turn it is, and lets those who wait for it know.
func (o *order) end(state driver.State, err error) {
	c := o.busy
	r, failed, _ := c.History.returned(c, driver.Result{State: state}, err)
	o.busy, o.asked, o.stage = c.key.next(0), nil, turnCame
	o.note("%s ends: %v, %v; and says %v, %v", name(c), state, err, r.State, failed)
	switch {
	case c.Op == Releasing && err != nil && Maybe(err):
		o.blurred = true
	case err == nil && c.History == o.claim && !o.claim.Busy():
		o.owed = false // what was sent has had its effect
	}
	o.tidy()
	if at := slices.IndexFunc(o.parts, func(p *part) bool { return p.call == c }); at >= 0 {
		o.hear(o.parts[at], r.State, failed)
	}
}

// hear has a release learn how its call has ended.
func (o *order) hear(p *part, state driver.State, err error) {
	switch {
	case err == nil:
		o.say(p, state)
	case p.call.unmade:
		p.leftOut = true
		o.seen["left out"]++
	}
	p.call = nil
}

// tidy forgets a claim of which nothing needs to be known.
func (o *order) tidy() {
	if o.known && o.claim.Over() && o.claim.Idle() {
		o.claim.Forget()
		o.known = false
		o.note("the claim is forgotten")
	}
}

// say has a release learn its part, and checks that it is the truth.
func (o *order) say(p *part, state driver.State) {
	p.says = state
	o.note("a release says %v", state)
	o.seen[fmt.Sprintf("%v, held: %v", state, o.freed)]++
	switch {
	case state != driver.Unknown && (state == driver.Held) != o.freed:
		o.wrong(fmt.Sprintf("a release has ended a grant since the claim ended: %v", o.freed))
	case state == driver.Unknown && !o.blurred:
		o.wrong("a release does not know, and nothing is left open")
	}
}

// check checks that who counts on the node is told of a release that may yet end a grant there.
func (o *order) check() {
	ending := o.known && o.claim.Ending().Has(0)
	has := o.has != driver.Lost
	for _, q := range o.sent {
		has = has || q.Op == Acquiring && q.History == o.claim
		if has && q.Op == Releasing && !ending {
			o.wrong("nobody knows of a release that may yet take effect")
		}
	}
	if doubts := o.doubts.Load(); (doubts == 1) != ending || doubts > 1 {
		o.wrong(fmt.Sprintf("%d claims count as doubtful; this one does: %v", doubts, ending))
	}
}

// run does some steps, and then ends what is left.
func (o *order) run() {
	for range 8 + o.IntN(40) {
		wheel[o.IntN(len(wheel))](o)
		if o.check(); o.bad != "" {
			return
		}
	}
	o.calm, o.hangs = true, false
	if o.live() {
		o.release()
	}
	for left := 300; o.rest(); left-- {
		if o.check(); left == 0 {
			o.wrong("this does not end")
		}
		if o.bad != "" {
			return
		}
	}
	if o.known || o.doubts.Load() != 0 {
		o.wrong("the claim is never forgotten")
	}
	if o.has != driver.Lost && !o.banned {
		o.wrong("the claim is left at the node: " + o.has.String())
	}
}

// rest does a step without a fault. It reports false if there is none left.
func (o *order) rest() bool {
	leftOut := slices.ContainsFunc(o.parts, func(p *part) bool { return p.leftOut })
	pending := o.known && o.claim.pending.Has(0)
	switch {
	case len(o.sent) > 0:
		o.arrive()
	case o.busy != nil:
		o.proceed()
	case leftOut && !(pending && o.oneOf(2)):
		o.need()
	case pending:
		o.repeatPending()
	default:
		return false
	}
	return true
}

// Whatever the order of a claim's calls, of their effects and of their answers: a release says that
// the node held the claim if a release has ended a grant there since the claim ended, and that it
// did not if none has and none will. It says that it does not know only if a release had no answer,
// or was under way when the claim ended, and no later call was answered before the claim ended
// again. A release that may yet end a grant counts as a doubt.
//
// An order is drawn: when the claim is asked for and released, again and twice at once, whether the
// node is left out, which calls wait, are late, are refused, have no answer or take effect after
// their time, and when the node loses or grants the claim. At the end the faults are over, and
// nothing may be left. HOLDFAST_SEED is the first order's seed, HOLDFAST_HISTORIES how many there
// are.
func TestReleasesTellTheTruthInAnyOrderOfCalls(t *testing.T) {
	first := number(t, "HOLDFAST_SEED", uint64(time.Now().UnixNano()))
	orders := number(t, "HOLDFAST_HISTORIES", defaultOrders)
	t.Logf("seeds from %d: HOLDFAST_SEED=%d repeats", first, first)
	seen := make(seen)
	var failed, failures uint64
	var shortest []string
	for seed := first; seed < first+orders; seed++ {
		o := newOrder(seed, seen)
		if o.run(); o.bad == "" {
			continue
		}
		if failures++; shortest == nil || len(o.log) < len(shortest) {
			failed, shortest = seed, o.log
		}
	}
	if failures > 0 {
		t.Errorf("%d of %d orders fail; the shortest has seed %d:\n%s", failures, orders, failed,
			strings.Join(shortest, "\n"))
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%s: %d", what, seen[what])
	}
	for _, what := range sights {
		if seen[what] < int(orders/2000) {
			t.Errorf("%s: %d times; want it in one of 2000 orders", what, seen[what])
		}
	}
}

// number returns the number in a variable of the environment.
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
