package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

const bound = 10 * time.Millisecond

var (
	errBroken = &driver.Error{Maybe: true, Err: errors.New("connection broken")}
	errNever  = &driver.Error{Err: errors.New("connection refused")} // had no effect
	// may have had an effect, and will not be asked again
	errForGood = &driver.Error{Maybe: true, Permanent: true, Err: errors.New("no permission")}
	errGone    = errors.New("group closed")
)

// fake is a backend that records what it is asked, and answers what it is told to.
type fake struct {
	mu     sync.Mutex
	asked  []string // operation, key, owner
	answer driver.Result
	err    error
	stuck  error         // of releases; nil: err
	hang   chan struct{} // nil, or calls answer when it is closed
}

func (f *fake) call(ctx context.Context, what string) (driver.Result, error) {
	f.mu.Lock()
	f.asked = append(f.asked, what)
	hang := f.hang
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return driver.Result{}, &driver.Error{Maybe: true, Err: ctx.Err()}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answer, f.err
}

func (f *fake) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	return f.call(ctx, "acquire "+c.Key+" "+c.Owner)
}

func (f *fake) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	result, err := f.call(ctx, "release "+c.Key+" "+c.Owner)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck != nil {
		err = f.stuck
	}
	return result, err
}

func (f *fake) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	r, err := f.call(ctx, fmt.Sprint("renew ", len(claims)))
	return []driver.Result{r}, err
}

func (f *fake) Close() error { return nil }

// set changes what it answers.
func (f *fake) set(err error, hang chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hang = err, hang
}

// took returns what it was asked since the last time.
func (f *fake) took() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// table is a key and its claims, as those who use nodes have them.
type table struct {
	mu     sync.Mutex
	key    Key
	claims map[string]*claim
}

type claim struct {
	history History
	latest  []bool // of the answers
	tidied  int
}

func (c *claim) Answered(_ *Call, _ driver.Result, _ error, latest bool) func() {
	c.latest = append(c.latest, latest)
	return nil
}

func (c *claim) Tidy() { c.tidied++ }

func newTable() *table { return &table{claims: make(map[string]*claim)} }

func (t *table) claim(owner string) *claim {
	c := t.claims[owner]
	if c == nil {
		c = &claim{}
		c.history = NewHistory(&t.mu, c, new(atomic.Int64))
		c.history.Key = &t.key
		t.claims[owner] = c
	}
	return c
}

// outcome is where a call's answer goes.
type outcome chan *Call

func (o outcome) Answer(c *Call, _ driver.Result, err error) { o <- c }

// call makes a call, and returns a place that has the call's outcome when the call has ended.
func (t *table) call(n *Node, op Operation, owner string, change ...func(*Call)) outcome {
	o := make(outcome, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	h := &t.claim(owner).history
	if op == Releasing {
		h.End()
	} else {
		h.Begin()
	}
	c := &Call{
		Node: n, Op: op, Claim: &driver.Claim{Key: "k", Owner: owner, TTL: time.Minute},
		History: h, Bound: bound, Until: clock.In(bound), To: o,
	}
	for _, f := range change {
		f(c)
	}
	c.Make()
	return o
}

// bubble runs f in fake time, with nodes on fakes.
func bubble(t *testing.T, n int, f func(t *testing.T, nodes []*Node, fakes []*fake)) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(Config{
			Identify: func(context.Context) {}, Closed: errGone, Keep: 2, ReleaseBound: bound,
		})
		nodes, fakes := make([]*Node, n), make([]*fake, n)
		for i := range nodes {
			fakes[i] = &fake{answer: driver.Result{State: driver.Held, Token: 1}}
			nodes[i] = New(g, i, fmt.Sprintf("node %d", i+1), fakes[i], 0)
			nodes[i].Identified("", errAnonymous)
		}
		f(t, nodes, fakes)
		synctest.Wait()
		g.Cancel()
		for _, n := range nodes {
			n.Close()
		}
		g.Close(time.Second)
	})
}

func check(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: the backend was asked %q; want %q", what, got, want)
	}
}

// Calls for a key go to a node one after the other. Other nodes and renewals do not wait for them.
func TestCallsOfOneKeyGoInOrder(t *testing.T) {
	bubble(t, 2, func(t *testing.T, nodes []*Node, fakes []*fake) {
		keys, hang := newTable(), make(chan struct{})
		fakes[0].set(nil, hang)
		first := keys.call(nodes[0], Acquiring, "a")
		second := keys.call(nodes[0], Releasing, "a")
		keys.call(nodes[1], Acquiring, "b")
		(&Renewal{
			Node: nodes[0], Claims: make([]driver.Claim, 1), Bound: bound, Until: clock.In(bound),
			To: renewed{},
		}).Start()
		asked := fakes[0].took()
		slices.Sort(asked) // these two have no order
		check(t, "node 1", asked, []string{"acquire k a", "renew 1"})
		check(t, "node 2", fakes[1].took(), []string{"acquire k b"})
		close(hang)
		if c := <-first; c.Queued() {
			t.Error("the first call had to wait for its turn")
		}
		if c := <-second; !c.Queued() {
			t.Error("the second call did not wait for its turn")
		}
		check(t, "after the answer", fakes[0].took(), []string{"release k a"})
		if got := keys.claims["a"].latest; !slices.Equal(got, []bool{false, true}) {
			t.Errorf("latest: %v; want that the second answer is", got)
		}
		if keys.key.Busy() || !keys.claims["a"].history.Idle() {
			t.Error("calls are under way when all have returned")
		}
	})
}

type renewed struct{}

func (renewed) Renewed(*Node, []driver.Result, error) {}

// A call has its bound, from when its turn has come.
func TestCallsAreBounded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		keys, start := newTable(), time.Now()
		fakes[0].set(nil, make(chan struct{}))
		first, second := keys.call(nodes[0], Acquiring, "a"), keys.call(nodes[0], Releasing, "a")
		<-first
		if d := time.Since(start); d != bound {
			t.Errorf("the first call took %v; want %v", d, bound)
		}
		<-second
		if d := time.Since(start); d != 2*bound {
			t.Errorf("the second call returned after %v; want %v", d, 2*bound)
		}
		if err := nodes[0].Status(clock.Now()).Err; !errors.Is(err, ErrNoReply) {
			t.Errorf("error %v; want that the node gave no answer", err)
		}
	})
}

// If the release of an acquisition was asked for before the acquisition's turn, the acquisition is
// not made, and so there is nothing to release.
func TestOverAcquisitionIsNotMade(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		keys, hang := newTable(), make(chan struct{})
		fakes[0].set(nil, hang)
		keys.call(nodes[0], Acquiring, "a")
		acquire, release := keys.call(nodes[0], Acquiring, "b"), keys.call(nodes[0], Releasing, "b")
		close(hang)
		if c := <-acquire; !c.Unmade() {
			t.Error("the acquisition was made")
		}
		<-release
		check(t, "node", fakes[0].took(), []string{"acquire k a"})
	})
}

// Of the releases of one claim that wait for their turn, those are not made that come after one
// that was confirmed, but the probe of the node is.
func TestReleasesAfterAConfirmedOneAreNotMade(t *testing.T) {
	for _, failing := range []bool{false, true} {
		t.Run(fmt.Sprintf("the first one fails %v", failing), func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
				keys, hang := newTable(), make(chan struct{})
				<-keys.call(nodes[0], Acquiring, "a")
				fakes[0].set(nil, hang)
				first := keys.call(nodes[0], Releasing, "a")
				var later []outcome
				for i := range 4 {
					probe := func(c *Call) { c.Probe = i == 3 }
					later = append(later, keys.call(nodes[0], Releasing, "a", probe))
				}
				want := []string{"acquire k a", "release k a", "release k a"}
				if failing { // it has its time, and the second one is made then
					<-first
					want = append(want, "release k a")
				}
				close(hang)
				for _, o := range later {
					if c := <-o; c.Unmade() {
						t.Error("a release counts as not made; want that it is answered")
					}
				}
				time.Sleep(2 * maxBackoff) // none is pending any more
				check(t, "node", fakes[0].took(), want)
			})
		})
	}
}

// said is a Receiver of the states that nodes answer, which is Unknown if they do not.
type said chan driver.State

func (s said) Answer(_ *Call, r driver.Result, err error) {
	if err != nil {
		r.State = driver.Unknown
	}
	s <- r.State
}

// What a confirmed release has said counts for those that repeat it, until the claim is asked for
// again. After one without an answer, nobody knows whether a claim that is gone was held. That
// lasts until it is asked for again, and the node has answered a later call by the time it ends.
func TestGone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		keys, answers := newTable(), make(said, 1)
		h := &keys.claim("a").history
		for _, step := range []struct {
			op     Operation
			answer driver.State
			err    error
			says   driver.State
			gone   driver.State // afterwards
		}{
			{op: Acquiring, answer: driver.Held},
			{Releasing, driver.Held, errNever, driver.Unknown, driver.Lost},
			{Releasing, driver.Lost, nil, driver.Lost, driver.Lost},
			{op: Acquiring, answer: driver.Held},
			{Releasing, driver.Held, errBroken, driver.Unknown, driver.Unknown},
			{Releasing, driver.Lost, nil, driver.Unknown, driver.Unknown},
			{Releasing, driver.Held, errBroken, driver.Unknown, driver.Unknown},
			{op: Acquiring, answer: driver.Held},
			{Releasing, driver.Held, errBroken, driver.Unknown, driver.Unknown},
			{Releasing, driver.Busy, nil, driver.Unknown, driver.Unknown},
			{op: Acquiring, answer: driver.Held},
			{Releasing, driver.Held, nil, driver.Held, driver.Held},
			{Releasing, driver.Lost, nil, driver.Held, driver.Held},
			{Releasing, driver.Lost, errBroken, driver.Held, driver.Held},
			{op: Acquiring, answer: driver.Held},
			{Releasing, driver.Held, errBroken, driver.Unknown, driver.Unknown},
			{Releasing, driver.Held, nil, driver.Held, driver.Held}, // so that one did nothing
			{op: Acquiring, answer: driver.Held},
			{Releasing, driver.Held, errForGood, driver.Unknown, driver.Unknown},
			{op: Acquiring, answer: driver.Held, err: errNever},
			{Releasing, driver.Lost, nil, driver.Unknown, driver.Unknown},
			{op: Acquiring, answer: driver.Held, err: errBroken},
			{Releasing, driver.Lost, nil, driver.Lost, driver.Lost},
			{op: Acquiring, answer: driver.Busy},
			{Releasing, driver.Lost, nil, driver.Lost, driver.Lost},
		} {
			fakes[0].answer = driver.Result{State: step.answer, Token: 1}
			fakes[0].set(step.err, nil)
			<-keys.call(nodes[0], step.op, "a", func(c *Call) { c.To = both{c.To, answers} })
			says := <-answers
			keys.mu.Lock()
			gone := h.Gone(0)
			keys.mu.Unlock()
			if step.op == Releasing && (says != step.says || gone != step.gone) {
				t.Errorf("%+v: %v, and then %v", step, says, gone)
			}
			synctest.Wait()
		}
	})
}

// A release without an answer that the claim was asked for after says nothing of the new hold.
func TestUnheardReleaseOfAnEarlierHold(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		keys, hang := newTable(), make(chan struct{})
		<-keys.call(nodes[0], Acquiring, "a")
		fakes[0].set(nil, hang)
		first, second := keys.call(nodes[0], Releasing, "a"), keys.call(nodes[0], Acquiring, "a")
		<-first // its time is over
		close(hang)
		<-second
		keys.mu.Lock()
		defer keys.mu.Unlock()
		h := &keys.claim("a").history
		h.End()
		if gone := h.Gone(0); gone != driver.Lost {
			t.Errorf("a node without the claim counts as %v; want lost", gone)
		}
	})
}

// A node left out of an acquisition may have an earlier hold of the claim, whose release it has not
// answered. What it answers to that release is of the earlier hold. It is asked again, and if it
// says that the claim is gone, nobody knows since when.
func TestReleaseOfAnEarlierHoldSaysNothingOfThisOne(t *testing.T) {
	for _, test := range []struct{ first, second, says driver.State }{
		{driver.Held, driver.Lost, driver.Unknown},
		{driver.Lost, driver.Lost, driver.Lost}, // so that one did nothing
		{driver.Held, driver.Held, driver.Held},
		{driver.Lost, driver.Busy, driver.Busy},
	} {
		bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
			keys, hang, answers := newTable(), make(chan struct{}), make(said, 2)
			tell := func(c *Call) { c.To = both{c.To, answers} }
			<-keys.call(nodes[0], Acquiring, "a")
			fakes[0].set(nil, hang)
			fakes[0].answer.State = test.first
			keys.call(nodes[0], Releasing, "a", tell)
			keys.mu.Lock()
			keys.claim("a").history.Begin()
			keys.mu.Unlock()
			second := keys.call(nodes[0], Releasing, "a", tell)
			again := keys.call(nodes[0], Releasing, "a") // has nothing left to do
			synctest.Wait()
			next := make(chan struct{})
			fakes[0].set(nil, next)
			close(hang)
			first := <-answers
			fakes[0].mu.Lock()
			fakes[0].answer.State = test.second
			fakes[0].mu.Unlock()
			close(next)
			<-second
			<-again
			if says := <-answers; first != test.first || says != test.says {
				t.Errorf("answers %v and %v: the releases say %v and %v; want %v of the second",
					test.first, test.second, first, says, test.says)
			}
			check(t, "node", fakes[0].took(), []string{"acquire k a", "release k a", "release k a"})
		})
	}
}

// What the last release says after calls for one claim, and answers to them, in such an order. In
// between the claim may be asked for at other nodes alone.
func TestWhatAReleaseSaysAfterEarlierCalls(t *testing.T) {
	for _, test := range []struct {
		name, steps string
		says        driver.State
	}{
		{"one waited, and is under way when the claim ends",
			"acquire release held leftOut release held lost", driver.Unknown},
		{"one is under way when the claim ends, and has no answer",
			"acquire held release leftOut release none lost", driver.Unknown},
		{"one has no answer, and the acquisition behind it is not made",
			"acquire held release acquire release none lost", driver.Unknown},
		{"one ended a place in the queue",
			"acquire busy release leftOut release busy lost", driver.Lost},
		{"one was answered before the claim ended, and the acquisition behind it was not",
			"acquire held release acquire held none release lost", driver.Lost},
		{"one has no answer, and the acquisition behind it is refused after the claim has ended",
			"acquire held release acquire none release busy lost", driver.Unknown},
		{"one has no answer, and the acquisition behind it queues after the claim has ended",
			"acquire held release acquire none release busy busy", driver.Unknown},
		{"one has no answer, and the acquisition behind it is answered before the claim ends",
			"acquire held release acquire none busy release lost", driver.Lost},
		{"one has no answer, but its repetition has, and the next acquisition does not",
			"acquire held release none release lost acquire none release lost", driver.Lost},
		{"one was answered when the claim was asked for again, and the acquisition has no answer",
			"acquire held release leftOut release acquire held lost none release lost", driver.Lost},
		{"one is sent after the claim has ended, and the acquisition behind it is not made",
			"acquire release acquire release held held lost", driver.Held},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
				keys, answers, hang := newTable(), make(said, 10), make(chan struct{})
				fakes[0].set(nil, hang)
				answer := func(state driver.State, err error) {
					next := make(chan struct{})
					fakes[0].set(err, next)
					fakes[0].answer.State = state
					close(hang)
					hang = next
				}
				call := func(op Operation) {
					keys.call(nodes[0], op, "a", func(c *Call) { c.To = both{c.To, answers} })
				}
				for step := range strings.FieldsSeq(test.steps) {
					switch synctest.Wait(); step {
					case "acquire":
						call(Acquiring)
					case "release":
						call(Releasing)
					case "leftOut":
						keys.mu.Lock()
						keys.claim("a").history.Begin()
						keys.mu.Unlock()
					case "none":
						answer(0, errBroken)
					default:
						answer(map[string]driver.State{"held": driver.Held, "busy": driver.Busy,
							"lost": driver.Lost}[step], nil)
					}
				}
				synctest.Wait()
				close(answers)
				var says driver.State
				for says = range answers {
				}
				if says != test.says {
					t.Errorf("the last release says %v; want %v", says, test.says)
				}
			})
		})
	}
}

// both are two Receivers.
type both [2]Receiver

func (b both) Answer(c *Call, r driver.Result, err error) {
	b[1].Answer(c, r, err)
	b[0].Answer(c, r, err)
}

// A release that is confirmed says nothing of an acquisition that was asked for after it.
func TestReleaseOfALaterAcquisitionIsMade(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		keys, hang := newTable(), make(chan struct{})
		<-keys.call(nodes[0], Acquiring, "a")
		fakes[0].set(nil, hang)
		first := keys.call(nodes[0], Releasing, "a")
		second := keys.call(nodes[0], Acquiring, "a")
		close(hang)
		<-first
		<-second
		if h := &keys.claim("a").history; !h.Touched().Has(0) {
			t.Error("the node does not have the claim; want that it may have it")
		}
		fakes[0].set(nil, nil)
		other := keys.call(nodes[0], Acquiring, "b")
		<-keys.call(nodes[0], Releasing, "a")
		<-other
		check(t, "node", fakes[0].took(), []string{"acquire k a", "release k a", "acquire k a",
			"acquire k b", "release k a"})

		hang = make(chan struct{})
		fakes[0].set(nil, hang)
		third, released := keys.call(nodes[0], Acquiring, "a"), keys.call(nodes[0], Releasing, "a")
		close(hang)
		<-third
		<-released
		if got := keys.claims["a"].latest; !slices.Equal(got[len(got)-2:], []bool{false, true}) {
			t.Errorf("latest: %v; want that the release is, which came after the acquisition", got)
		}
	})
}

// A node that is down is not asked, except by one probe at a time, and by callers that need it.
func TestBreakerLeavesNodeAlone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		n, keys := nodes[0], newTable()
		admit := func(force, wantProbe, want bool) {
			t.Helper()
			if probe, err := n.Admit(force); probe != wantProbe || (err == nil) != want {
				t.Errorf("Admit(%v) = %v, %v; want %v, admitted: %v", force, probe, err,
					wantProbe, want)
			}
		}
		fakes[0].set(errNever, nil)
		<-keys.call(n, Acquiring, "a")
		admit(false, false, true)
		<-keys.call(n, Acquiring, "b")
		if s := n.Status(clock.Now()); s.State != Down || !errors.Is(s.Err, errNever) {
			t.Errorf("status %+v; want down", s)
		}
		admit(false, false, false)
		admit(true, false, true)
		time.Sleep(minBackoff)
		admit(false, true, true)
		admit(false, false, false) // the probe is under way
		fakes[0].set(nil, nil)
		<-keys.call(n, Acquiring, "c")
		synctest.Wait()
		admit(false, false, true)
		if s := n.Status(clock.Now()); s.State != Up || s.Err != nil {
			t.Errorf("status %+v; want up", s)
		}
	})
}

// A node that is down is left alone for a second at most. Releases that are repeated wait for that,
// and nothing may be left a second after the node is back.
func TestNodeThatIsDownIsAskedAgainWithinASecond(t *testing.T) {
	for _, jitter := range []float64{0, 0.5, 0.99} {
		b := New(nil, 0, "node", nil, jitter).breaker
		var now clock.Instant
		for range 20 {
			b.fail(now)
			if b.nextProbe.Sub(now) > time.Second || b.pause() > time.Second {
				t.Errorf("jitter %v: left alone for %v and %v; want a second at most", jitter,
					b.nextProbe.Sub(now), b.pause())
			}
			now = max(now, b.nextProbe)
		}
	}
}

// A node in quarantine answers, so it is asked, and takes no part.
func TestQuarantine(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		n, keys := nodes[0], newTable()
		fakes[0].set(&driver.Error{Err: &driver.QuarantineError{Remaining: time.Second}}, nil)
		for range maxFailures {
			<-keys.call(n, Acquiring, "a")
		}
		s := n.Status(clock.Now())
		if s.State != Quarantined || s.Quarantine != time.Second || n.TakesPart() {
			t.Errorf("status %+v, takes part: %v; want a quarantine of 1s", s, n.TakesPart())
		}
		if _, err := n.Admit(false); err != nil {
			t.Errorf("Admit: %v; want that it is asked", err)
		}
		time.Sleep(time.Second)
		if !n.TakesPart() {
			t.Error("the node takes no part when its quarantine is over")
		}
	})
}

// A node takes no part from its first answer of a quarantine on, even before the observer is told,
// who may be slow with another node. This is in real time, because what waits for a mutex does not
// let fake time pass.
func TestQuarantineBeforeItIsObserved(t *testing.T) {
	var seen sync.WaitGroup
	seen.Add(1)
	var nodes []*Node
	var fakes []*fake
	quarantined := func() bool { return nodes[1].Status(clock.Now()).State == Quarantined }
	g := NewGroup(Config{Closed: errGone, Identify: func(context.Context) {},
		Observe: func(change Change) {
			if change.Node != nodes[0].Name || change.Is != Refusing {
				return
			}
			defer seen.Done()
			fakes[1].set(&driver.Error{Err: &driver.QuarantineError{Remaining: time.Hour}}, nil)
			newTable().call(nodes[1], Acquiring, "a")
			ticker := time.NewTicker(100 * time.Microsecond)
			defer ticker.Stop()
			for !quarantined() {
				<-ticker.C
			}
			if nodes[1].TakesPart() {
				t.Error("a node in quarantine takes part until the observer is told")
			}
		}})
	for i, name := range []string{"a", "b"} {
		fakes = append(fakes, &fake{})
		n := New(g, i, name, fakes[i], 0)
		n.Identified(name, nil)
		nodes = append(nodes, n)
		<-newTable().call(n, Acquiring, "a") // it is up
	}
	fakes[0].set(&driver.Error{Permanent: true, Err: errBroken}, nil)
	<-newTable().call(nodes[0], Acquiring, "a")
	seen.Wait()
	g.Wait(time.Minute)
	g.Cancel()
	g.Close(time.Minute)
}

// A release without an answer is made again when the node answers, but not if the claim was asked
// for since, and not if the node never had the claim.
func TestPendingReleases(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		n, keys := nodes[0], newTable()
		pending := func(want int) {
			t.Helper()
			if got := n.Status(clock.Now()).Releases; got != want {
				t.Errorf("%d releases pending; want %d", got, want)
			}
		}
		for _, owner := range []string{"a", "b"} {
			<-keys.call(n, Acquiring, owner)
		}
		fakes[0].set(errBroken, nil)
		for _, owner := range []string{"a", "b", "never"} {
			<-keys.call(n, Releasing, owner)
		}
		synctest.Wait()
		pending(2)
		if keys.claims["a"].history.Idle() {
			t.Error("nothing is known of the pending release")
		}
		fakes[0].set(nil, nil)
		fakes[0].took()
		<-keys.call(n, Acquiring, "b") // which shows that the node is back
		check(t, "when the node is back", fakes[0].took(), []string{"acquire k b", "release k a"})
		pending(0)
		if !keys.claims["a"].history.Idle() {
			t.Error("the release is pending after it was made")
		}
	})
}

// A node that answers but takes no releases is not asked for them all the time: the pause between
// two attempts grows, and each attempt is one call. When the node takes them, all are made.
func TestNodeThatTakesNoReleases(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error // of acquisitions
	}{
		{"grants", nil},
		{"is in quarantine", &driver.Error{Err: &driver.QuarantineError{Remaining: time.Hour}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
				n, f, keys := nodes[0], fakes[0], newTable()
				f.stuck = errBroken
				const owners = 2 * atOnce
				for i := range owners {
					<-keys.call(n, Acquiring, fmt.Sprint(i))
					<-keys.call(n, Releasing, fmt.Sprint(i))
				}
				f.set(c.err, nil)
				f.took()
				const seconds = 20
				for range seconds * 100 {
					<-keys.call(n, Acquiring, "other")
					time.Sleep(10 * time.Millisecond)
				}
				made := 0
				for _, what := range f.took() {
					if what[:7] == "release" {
						made++
					}
				}
				if made < seconds/2 || made > 2*seconds {
					t.Errorf("%d releases were made in %d s; want about one in a second", made,
						seconds)
				}
				f.set(nil, nil)
				f.mu.Lock()
				f.stuck = nil
				f.mu.Unlock()
				time.Sleep(2 * maxBackoff)
				synctest.Wait()
				if s := n.Status(clock.Now()); s.Releases != 0 {
					t.Errorf("%d releases are pending when the node takes them; want none",
						s.Releases)
				}
			})
		})
	}
}

// A claim that is asked for and released over and over, while its node takes nothing, has one
// pending release. More would push out those of other claims.
func TestPendingReleaseIsListedOnce(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		n, keys := nodes[0], newTable()
		fakes[0].set(errBroken, nil)
		for range 10 {
			<-keys.call(n, Acquiring, "a")
			<-keys.call(n, Releasing, "a")
		}
		synctest.Wait()
		if s := n.Status(clock.Now()); s.Releases != 1 {
			t.Errorf("%d releases of one claim are pending; want 1", s.Releases)
		}
		fakes[0].set(nil, nil)
		fakes[0].took()
		time.Sleep(2 * maxBackoff)
		check(t, "when the node is back", fakes[0].took(), []string{"release k a"})
		if s := n.Status(clock.Now()); s.Releases != 0 || !keys.claims["a"].history.Idle() {
			t.Errorf("%d releases are pending after that; want none, and an idle history",
				s.Releases)
		}
	})
}

// A release that fails is pending if the node may have the claim: also if the last acquisition
// surely had no effect. It is not if that was the only one, or if the claim was asked for since.
func TestReleaseIsPendingWhereTheClaimMayBe(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  func(keys *table, n *Node, f *fake)
		want int
	}{
		{"granted, then refused", func(keys *table, n *Node, f *fake) {
			<-keys.call(n, Acquiring, "a")
			f.set(errNever, nil)
			<-keys.call(n, Acquiring, "a")
			<-keys.call(n, Releasing, "a")
		}, 1},
		{"asked for again before it was refused", func(keys *table, n *Node, f *fake) {
			hang := make(chan struct{})
			f.set(errNever, hang)
			first, second := keys.call(n, Acquiring, "a"), keys.call(n, Acquiring, "a")
			close(hang)
			<-first
			<-second
			<-keys.call(n, Releasing, "a")
		}, 1},
		{"released before it was refused", func(keys *table, n *Node, f *fake) {
			hang := make(chan struct{})
			f.set(errNever, hang)
			keys.call(n, Acquiring, "a")
			release := keys.call(n, Releasing, "a")
			close(hang)
			<-release
		}, 0},
		{"asked for and released before it was refused", func(keys *table, n *Node, f *fake) {
			hang := make(chan struct{})
			f.set(errNever, hang)
			keys.call(n, Acquiring, "a")
			keys.call(n, Acquiring, "a")
			release := keys.call(n, Releasing, "a")
			close(hang)
			<-release
		}, 1},
		{"released before it was refused, and granted before that", func(keys *table, n *Node,
			f *fake) {
			<-keys.call(n, Acquiring, "a")
			hang := make(chan struct{})
			f.set(errNever, hang)
			keys.call(n, Acquiring, "a")
			release := keys.call(n, Releasing, "a")
			close(hang)
			<-release
		}, 1},
		{"asked for twice and released, then refused", func(keys *table, n *Node, f *fake) {
			<-keys.call(n, Acquiring, "a")
			<-keys.call(n, Acquiring, "a")
			<-keys.call(n, Releasing, "a")
			f.set(errNever, nil)
			<-keys.call(n, Acquiring, "a")
			<-keys.call(n, Releasing, "a")
		}, 0},
		{"asked for after the release", func(keys *table, n *Node, f *fake) {
			<-keys.call(n, Acquiring, "a")
			hang := make(chan struct{})
			f.set(errBroken, hang)
			first, second := keys.call(n, Releasing, "a"), keys.call(n, Acquiring, "a")
			close(hang)
			<-first
			<-second
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
				c.ask(newTable(), nodes[0], fakes[0])
				if got := nodes[0].Status(clock.Now()).Releases; got != c.want {
					t.Errorf("%d releases pending; want %d", got, c.want)
				}
			})
		})
	}
}

// While a node is down its pending releases serve as probes, one at a time. When it is back all are
// made at once, and what fails then is pending like any other.
func TestPendingReleasesOfANodeThatWasDown(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		n, f, keys := nodes[0], fakes[0], newTable()
		const owners = 2 * atOnce
		others := make([]*table, owners) // of as many keys
		for i := range others {
			others[i] = newTable()
			<-others[i].call(n, Acquiring, "0")
		}
		f.set(errBroken, nil)
		for i := range others {
			<-others[i].call(n, Releasing, "0")
		}
		f.took()
		time.Sleep(minBackoff)
		if got := len(f.took()); got != 1 {
			t.Errorf("%d releases were made as the first probe; want 1", got)
		}
		time.Sleep(10 * maxBackoff)
		f.set(nil, nil)
		f.took()
		<-keys.call(n, Acquiring, "new")
		if got := len(f.took()); got != 1+owners {
			t.Errorf("%d calls when the node was back; want the acquisition and %d releases", got,
				owners)
		}
		<-others[0].call(n, Acquiring, "0")
		f.set(errBroken, nil)
		<-others[0].call(n, Releasing, "0")
		f.set(nil, nil)
		f.took()
		<-keys.call(n, Acquiring, "newer")
		check(t, "after one call failed", f.took(), []string{"acquire k newer", "release k 0"})
	})
}

// A node that is needed is asked even if it turned out to be down while the call waited. If a probe
// is not made, another call may be the probe.
func TestCallsThatWaitedForANodeThatIsDown(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		n, f, keys := nodes[0], fakes[0], newTable()
		forced := func(c *Call) { c.Forced = true }
		f.set(errNever, nil)
		for range maxFailures {
			<-keys.call(n, Acquiring, "a")
		}
		hang := make(chan struct{})
		f.set(errNever, hang)
		time.Sleep(minBackoff)
		first := keys.call(n, Acquiring, "a", forced)
		needed := keys.call(n, Acquiring, "b", forced)
		probing, err := n.Admit(false)
		if !probing || err != nil {
			t.Fatalf("Admit: %v, %v; want the probe", probing, err)
		}
		probe := keys.call(n, Acquiring, "c", func(c *Call) { c.Probe = true })
		release := keys.call(n, Releasing, "c", forced)
		close(hang)
		<-first
		if c := <-needed; c.Unmade() {
			t.Error("a call that is needed was not made")
		}
		if c := <-probe; !c.Unmade() {
			t.Error("the probe was made for a claim that is over")
		}
		<-release
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.breaker.probe(n.breaker.nextProbe) {
			t.Error("no other call can be the probe, though the first was not made")
		}
	})
}

// A node that fails with a permanent error answers: it is not down.
func TestRefusingNodeIsNotDown(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		n, keys := nodes[0], newTable()
		fakes[0].set(&driver.Error{Permanent: true, Err: errors.New("no permission")}, nil)
		for range maxFailures {
			<-keys.call(n, Acquiring, "a")
		}
		if s := n.Status(clock.Now()); s.State != Refusing {
			t.Errorf("status %+v; want refusing", s)
		}
	})
}

// Whoever waits for the calls under way goes on when they have ended.
func TestWaitEndsWithTheLastCall(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		fakes[0].set(nil, make(chan struct{}))
		newTable().call(nodes[0], Acquiring, "a")
		start := time.Now()
		nodes[0].group.Wait(time.Hour)
		if took := time.Since(start); took != bound {
			t.Errorf("waited for %v; want %v", took, bound)
		}
	})
}

// No more releases are remembered for a node than there is room for: the oldest is forgotten.
func TestPendingReleasesAreBounded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		n, keys := nodes[0], newTable()
		fakes[0].set(errBroken, nil)
		for i := range maxReleases + 1 {
			keys.mu.Lock()
			h := &keys.claim(fmt.Sprint(i)).history
			h.Pend(n.Index)
			keys.mu.Unlock()
			n.Pend(h, "k", fmt.Sprint(i))
		}
		s := n.Status(clock.Now())
		if s.Releases != maxReleases || s.Forgotten != 1 {
			t.Errorf("%d pending, %d forgotten; want %d and 1", s.Releases,
				s.Forgotten, maxReleases)
		}
		if c := keys.claims["0"]; !c.history.Idle() || c.tidied != 1 {
			t.Errorf("the oldest is pending: %v, and was tidied %d times; want false, once",
				!c.history.Idle(), c.tidied)
		}
		if !keys.claims["0"].history.Pend(n.Index) {
			t.Error("a claim that was forgotten is not listed when it is pending again")
		}
	})
}

// The calls of a closed group end, and say why.
func TestCancelEndsCalls(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes []*Node, fakes []*fake) {
		fakes[0].set(nil, make(chan struct{}))
		done := newTable().call(nodes[0], Acquiring, "a")
		synctest.Wait()
		nodes[0].group.Cancel()
		<-done
		if err := nodes[0].Status(clock.Now()).Err; !errors.Is(err, errGone) {
			t.Errorf("error %v; want that the group is closed", err)
		}
	})
}
