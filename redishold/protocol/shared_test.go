package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// fakeLibrary is a Library and its only Node. Requests wait for the gate of their lock's key, if
// there is one.
type fakeLibrary struct {
	cluster   bool
	answer    func(protocol.Command) protocol.Reply
	subscribe func(context.Context) error // nil: it works

	mu    sync.Mutex
	gates map[string]chan struct{}
	sent  []string // names of scripts' keys, in the order in which requests began
}

func (l *fakeLibrary) Node(context.Context, uint16) (protocol.Node, error) { return l, nil }
func (l *fakeLibrary) At(context.Context, string) (protocol.Node, error)   { return l, nil }
func (l *fakeLibrary) Nodes(context.Context) ([]protocol.Node, error) {
	return []protocol.Node{l}, nil
}
func (l *fakeLibrary) Cluster() bool       { return l.cluster }
func (l *fakeLibrary) Reload()             {}
func (l *fakeLibrary) NotSent(error) bool  { return false }
func (l *fakeLibrary) Shard(uint16) string { return "" }
func (l *fakeLibrary) Sharded() bool       { return l.cluster }
func (l *fakeLibrary) Subscribe(ctx context.Context, _ string, _ func(string)) (func(), error) {
	if l.subscribe != nil {
		return nil, l.subscribe(ctx)
	}
	return func() {}, nil
}

func (l *fakeLibrary) Pipeline(_ context.Context, commands []protocol.Command,
	replies []protocol.Reply) error {
	for i, command := range commands {
		if command[0] == "EVALSHA" {
			l.mu.Lock()
			l.sent = append(l.sent, scriptName(command[1])+" "+command[3])
			gate := l.gates[command[3]]
			l.mu.Unlock()
			if gate != nil {
				<-gate
			}
		}
		replies[i] = l.answer(command)
	}
	return nil
}

func (l *fakeLibrary) requests() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.sent...)
}

func scriptName(sha string) string {
	for _, s := range protocol.Scripts() {
		if s.SHA == sha {
			return s.Name
		}
	}
	return sha
}

// brief is a context that ends while a request hangs.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func one(protocol.Command) protocol.Reply { return protocol.Reply{Kind: protocol.Integer, Int: 1} }

func TestSharedKeepsTheOrderOfASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := &fakeLibrary{answer: one, gates: map[string]chan struct{}{"k": gate}}
		b := protocol.New(protocol.Shared(l), protocol.Options{})
		if _, err := b.Acquire(brief(t), claim()); !errors.Is(err, driver.ErrUnknown) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Acquire: %v", err)
		}
		if _, err := b.Release(brief(t), claim()); !errors.Is(err, driver.ErrUnknown) {
			t.Fatalf("Release: %v", err)
		}
		// Another slot is not held up.
		other := claim()
		other.Key = "other"
		if r, err := b.Release(t.Context(), other); err != nil || r.State != driver.Held {
			t.Fatalf("Release of another: %v, %v", r, err)
		}
		if got := fmt.Sprint(l.requests()); got != "[acquire k release other]" {
			t.Fatalf("while the acquisition hangs, these were sent: %s", got)
		}
		close(gate)
		// What comes next comes behind the release that was given up.
		if r, err := b.Acquire(t.Context(), claim()); err != nil || r.State != driver.Held {
			t.Fatalf("Acquire: %v, %v", r, err)
		}
		if got := fmt.Sprint(l.requests()); got != "[acquire k release other release k acquire k]" {
			t.Fatalf("sent: %s", got)
		}
	})
}

// On a machine where a request takes longer than its caller waits, requests that nobody waits for
// any more must not make it worse.
func TestSharedSendsNothingForThoseWhoGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, bound = 307 * time.Millisecond, 140 * time.Millisecond
		f := &fakeLibrary{answer: func(c protocol.Command) protocol.Reply {
			time.Sleep(slow)
			return one(c)
		}}
		b := protocol.New(protocol.Shared(f), protocol.Options{})
		for i := range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			before := len(f.requests())
			_, err := b.Acquire(ctx, claimOf(fmt.Sprint("owner", i)))
			cancel()
			// Some of them are sent: each when the one before it has come back.
			sent := len(f.requests()) > before
			if !errors.Is(err, context.DeadlineExceeded) ||
				sent && !errors.Is(err, driver.ErrUnknown) {
				t.Fatalf("Acquire that was sent: %v", err)
			}
			if !sent && !errors.Is(err, driver.ErrUnavailable) {
				t.Fatalf("Acquire that was not sent: %v", err)
			}
		}
		start := time.Now()
		if r, err := b.Acquire(t.Context(), claim()); err != nil || r.State != driver.Held {
			t.Fatalf("Acquire: %v, %v", r, err)
		}
		if took := time.Since(start); took > 2*slow {
			t.Errorf("an acquisition waits for %v behind those that nobody waits for", took)
		}
	})
}

// A release that is still sent when its caller is gone is sent once, however often it was asked
// for.
func TestSharedSendsARepeatedReleaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := &fakeLibrary{answer: one, gates: map[string]chan struct{}{"k": gate}}
		b := protocol.New(protocol.Shared(l), protocol.Options{})
		if _, err := b.Acquire(brief(t), claim()); !errors.Is(err, driver.ErrUnknown) {
			t.Fatalf("Acquire: %v", err)
		}
		for range 10 {
			if _, err := b.Release(brief(t), claim()); !errors.Is(err, driver.ErrUnknown) {
				t.Fatalf("Release: %v", err)
			}
			if _, err := b.Release(brief(t), claimOf("other")); !errors.Is(err, driver.ErrUnknown) {
				t.Fatalf("Release: %v", err)
			}
		}
		close(gate)
		synctest.Wait()
		if got := fmt.Sprint(l.requests()); got != "[acquire k release k release k]" {
			t.Errorf("sent: %s; want one release of each of the two owners", got)
		}
	})
}

// A release that was given up is not left out for an earlier one that is the same: the claim may
// have been asked for between the two.
func TestSharedSendsTheLastOfRepeatedReleases(t *testing.T) {
	const bound = 20 * time.Millisecond
	for _, patience := range [][2]time.Duration{{bound, 2 * bound}, {2 * bound, bound}} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			l := &fakeLibrary{answer: one, gates: map[string]chan struct{}{"k": gate}}
			b := protocol.New(protocol.Shared(l), protocol.Options{})
			release := func(patience time.Duration) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				b.Release(ctx, claim())
			}
			for _, call := range []func(){
				func() { b.Acquire(t.Context(), claim()) },
				func() { release(patience[0]) },
				func() { b.Acquire(t.Context(), claim()) },
				func() { release(patience[1]) },
			} {
				go call()
				synctest.Wait()
			}
			time.Sleep(3 * bound)
			close(gate)
			synctest.Wait()
			if got := fmt.Sprint(l.requests()); got != "[acquire k acquire k release k]" {
				t.Errorf("sent: %s", got)
			}
		})
	}
}

// A server that does not know the script is sent its source, and that is a release as well.
func TestSharedSendsTheSourceOfAReleaseThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 20 * time.Millisecond
		var sources atomic.Int32
		l := &fakeLibrary{answer: func(c protocol.Command) protocol.Reply {
			if c[0] == "EVAL" {
				sources.Add(1)
				return one(c)
			}
			time.Sleep(bound / 2)
			if scriptName(c[1]) == "release" {
				return failing("NOSCRIPT No matching script.")(c)
			}
			time.Sleep(bound)
			return one(c)
		}}
		b := protocol.New(protocol.Shared(l), protocol.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		go b.Release(ctx, claim())
		synctest.Wait()
		go b.Acquire(t.Context(), claimOf("other")) // between the two requests of the release
		time.Sleep(10 * bound)
		if n := sources.Load(); n != 1 {
			t.Errorf("the source of the release was sent %d times; want once", n)
		}
	})
}

// Requests that have returned leave nothing: their number is bounded, and a request that was
// refused for that is accepted when they have returned.
func TestSharedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := &fakeLibrary{answer: one, gates: map[string]chan struct{}{"k": gate}}
		tr := protocol.Shared(l)
		b := protocol.New(tr, protocol.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		const all = 1 + protocol.MaxQueued // one of them does not wait
		for i := range all {
			go b.Release(ctx, claimOf(fmt.Sprint("owner", i)))
		}
		<-ctx.Done()
		synctest.Wait()
		if _, err := b.Acquire(t.Context(), claim()); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire behind %d requests: %v", all, err)
		}
		other := claim()
		other.Key = "other"
		if r, err := b.Acquire(t.Context(), other); err != nil || r.State != driver.Held {
			t.Errorf("Acquire behind none: %v, %v", r.State, err)
		}
		close(gate)
		synctest.Wait()
		if sent := len(l.requests()) - 1; sent != all {
			t.Errorf("%d releases were sent; want %d", sent, all)
		}
		if r, err := b.Acquire(t.Context(), claim()); err != nil || r.State != driver.Held {
			t.Errorf("Acquire when they are back: %v, %v", r.State, err)
		}
		if kept := protocol.Kept(tr); kept != 0 {
			t.Errorf("%d requests are remembered when all are back", kept)
		}
	})
}

// Callers that give up on a slot that hangs leave nothing in its line, and nothing that counts:
// other slots, whose servers answer, are served however many they were.
func TestSharedForgetsThoseWhoGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := &fakeLibrary{answer: one, gates: map[string]chan struct{}{"k": gate}}
		tr := protocol.Shared(l)
		b := protocol.New(tr, protocol.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range protocol.MaxQueued - 2 {
			go b.Acquire(ctx, claimOf(fmt.Sprint("owner", i)))
		}
		synctest.Wait()
		for _, end := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
			with, cancel := context.WithTimeout(t.Context(), end)
			defer cancel()
			go b.Release(with, claimOf("releases"))
		}
		time.Sleep(10 * time.Second)
		if kept := protocol.Kept(tr); kept != 3 {
			t.Errorf("%d are remembered; want a release that waits, its slot and which release "+
				"it is", kept)
		}
		other := claim()
		other.Key = "other"
		if r, err := b.Acquire(t.Context(), other); err != nil || r.State != driver.Held {
			t.Errorf("Acquire in another slot: %v, %v", r.State, err)
		}
		close(gate)
		synctest.Wait()
		if got := fmt.Sprint(l.requests()); got != "[acquire k acquire other release k]" {
			t.Errorf("sent: %s", got)
		}
	})
}

// A server of a cluster that hangs may have thousands of slots, with a request under way in each.
// They do not count among those that wait: slots of other servers are served.
func TestSharedServesOtherSlotsBesideThoseThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := &fakeLibrary{cluster: true, answer: func(c protocol.Command) protocol.Reply {
			if c[3] != "other" {
				<-gate
			}
			return one(c)
		}}
		tr := protocol.Shared(l)
		b := protocol.New(tr, protocol.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		slots := map[uint16]bool{protocol.Slot("other"): true}
		for i := 0; len(slots) < 2*protocol.MaxQueued; i++ {
			hangs := claim()
			hangs.Key = fmt.Sprint("k", i)
			if slot := protocol.Slot(hangs.Key); !slots[slot] {
				slots[slot] = true
				go b.Acquire(ctx, hangs)
			}
		}
		<-ctx.Done()
		synctest.Wait()
		other := claim()
		other.Key = "other"
		if r, err := b.Acquire(t.Context(), other); err != nil || r.State != driver.Held {
			t.Errorf("Acquire in another slot: %v, %v", r.State, err)
		}
		close(gate)
		synctest.Wait()
		if kept := protocol.Kept(tr); kept != 0 {
			t.Errorf("%d requests are remembered when all are back", kept)
		}
	})
}

// Notices take one more connection. One that takes longer to make than a call may take must not
// keep every call from being sent.
func TestSharedDoesNotNeedItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLibrary{answer: one, subscribe: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		b := protocol.New(protocol.Shared(l), protocol.Options{})
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
			defer cancel()
			queued := claim()
			queued.Queue = true
			if r, err := b.Acquire(ctx, queued); err != nil || r.State != driver.Held {
				t.Errorf("Acquire: %v, %v", r.State, err)
			}
		}
		time.Sleep(time.Minute) // the subscription is given up
	})
}

// A release that was given up takes effect before one that somebody waits for.
func TestSharedReleaseGivenUpComesBeforeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := &fakeLibrary{answer: one, gates: map[string]chan struct{}{"k": gate}}
		b := protocol.New(protocol.Shared(l), protocol.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		for _, call := range []func(context.Context, driver.Claim) (driver.Result, error){b.Acquire,
			b.Release} {
			go call(ctx, claim())
			synctest.Wait()
		}
		<-ctx.Done()
		go b.Release(t.Context(), claim())
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if got := fmt.Sprint(l.requests()); got != "[acquire k release k release k]" {
			t.Errorf("sent: %s", got)
		}
	})
}

// claimOf is claim for another owner.
func claimOf(owner string) driver.Claim {
	c := claim()
	c.Owner = owner
	return c
}

func TestSharedUndoesAGrantInQuarantine(t *testing.T) {
	l := &fakeLibrary{answer: remembering(time.Hour, func(c protocol.Command) protocol.Reply {
		switch c[0] {
		case "INFO":
			return protocol.Reply{Kind: protocol.String,
				Str: "redis_version:7.0.0\r\nrun_id:x\r\nuptime_in_seconds:3\r\n"}
		}
		return one(c)
	})}
	b := protocol.New(protocol.Shared(l), protocol.Options{})
	b.Guard(time.Minute)
	var q *driver.QuarantineError
	if _, err := b.Acquire(t.Context(), claim()); !errors.As(err, &q) ||
		q.Remaining > 58*time.Second || !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("Acquire: %v", err)
	}
	if got := fmt.Sprint(l.requests()); got != "[belong holdfast:s acquire k release k]" {
		t.Fatalf("sent: %s", got)
	}
	if _, err := b.Renew(t.Context(), []driver.Claim{claim()}); !errors.As(err, &q) {
		t.Fatalf("Renew: %v", err)
	}
	b.Guard(2 * time.Second)
	if r, err := b.Acquire(t.Context(), claim()); err != nil || r.State != driver.Held {
		t.Fatalf("Acquire after the quarantine: %v, %v", r, err)
	}
}

// The server is asked whether it may vote together with the request. If it does not say, or what
// it has granted cannot be undone, the acquisition has had its effect.
func TestSharedTellsOfAGrantThatIsNotUndone(t *testing.T) {
	young := protocol.Reply{Kind: protocol.String,
		Str: "redis_version:7.0.0\r\nrun_id:x\r\nuptime_in_seconds:3\r\n"}
	for _, c := range []struct {
		name    string
		info    protocol.Reply
		release protocol.Reply
	}{
		{"INFO is forbidden", failing("NOPERM no permission to run INFO")(nil), one(nil)},
		{"INFO says nothing", protocol.Reply{Kind: protocol.String}, one(nil)},
		{"in quarantine", young, failing("MISCONF the last snapshot failed")(nil)},
	} {
		f := &fake{unordered: true, answer: remembering(time.Hour,
			func(command protocol.Command) protocol.Reply {
				switch {
				case command[0] == "INFO":
					return c.info
				case scriptName(command[1]) == "release":
					return c.release
				}
				return one(command)
			})}
		b := protocol.New(f, protocol.Options{})
		b.Guard(time.Minute)
		_, err := b.Acquire(t.Context(), claim())
		if !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("%s: %v; want that the outcome is unknown", c.name, err)
		}
		if q := (*driver.QuarantineError)(nil); errors.As(err, &q) != (c.info.Str == young.Str) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A caller does not wait longer for the undo of a grant than for anything else. The undo is sent
// even when the caller is gone, and ahead of the claim's next request.
func TestSharedUndoIsNotWaitedForAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 50 * time.Millisecond
		l := &fakeLibrary{}
		l.answer = remembering(time.Hour, func(c protocol.Command) protocol.Reply {
			switch {
			case c[0] == "INFO":
				return protocol.Reply{Kind: protocol.String,
					Str: "redis_version:7.0.0\r\nrun_id:x\r\nuptime_in_seconds:3\r\n"}
			case scriptName(c[1]) == "release":
				time.Sleep(10 * bound)
			}
			return one(c)
		})
		b := protocol.New(protocol.Shared(l), protocol.Options{})
		b.Guard(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		start := time.Now()
		_, err := b.Acquire(ctx, claim())
		if took := time.Since(start); took != bound || !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("Acquire took %v of %v: %v", took, bound, err)
		}
		_, _ = b.Acquire(t.Context(), claim())
		want := "[belong holdfast:s acquire k release k belong holdfast:s acquire k release k]"
		if got := fmt.Sprint(l.requests()); got != want {
			t.Errorf("sent: %s; want %s", got, want)
		}
	})
}

// A grant in quarantine is undone, and its claim still asks. What was slow may be on its way twice,
// so the release tells the server that it is late. The server must not take what the claim asks for
// next for that.
func TestSharedAsksOnAfterASlowGrantInQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const numberOfAcquire, numberOfRelease = 19, 11 // places in the commands
		number := func(c protocol.Command, at int) int {
			if len(c) <= at {
				return 0
			}
			n, err := strconv.Atoi(c[at])
			if err != nil {
				t.Error(err)
			}
			return n
		}
		first, late := 0, 0
		f := &fake{unordered: true,
			answer: remembering(time.Hour, func(c protocol.Command) protocol.Reply {
				switch {
				case c[0] == "INFO":
					time.Sleep(300 * time.Millisecond) // slow
					return protocol.Reply{Kind: protocol.String,
						Str: "redis_version:7.0.0\r\nrun_id:x\r\nuptime_in_seconds:3\r\n"}
				case scriptName(c[1]) == "release":
					late = max(late, number(c, numberOfRelease+1))
				case scriptName(c[1]) == "acquire" && number(c, numberOfAcquire) <= late:
					return protocol.Reply{Kind: protocol.List,
						List: []protocol.Reply{{Kind: protocol.String}, {Kind: protocol.Integer},
							{Kind: protocol.Integer}, {Kind: protocol.Integer}}}
				case scriptName(c[1]) == "acquire" && first == 0:
					first = number(c, numberOfAcquire)
				}
				return one(c)
			})}
		b := protocol.New(f, protocol.Options{})
		b.Guard(time.Minute)
		var q *driver.QuarantineError
		if _, err := b.Acquire(t.Context(), claim()); !errors.As(err, &q) {
			t.Fatalf("Acquire: %v", err)
		}
		if last := f.sent[len(f.sent)-1]; scriptName(last[1]) != "release" {
			t.Fatalf("the grant was not undone: %q", last)
		}
		if first == 0 || late != first {
			t.Errorf("the release says that request %d is late, want %d, which was slow", late, first)
		}
		b.Guard(0)
		if r, err := b.Acquire(t.Context(), claim()); err != nil || r.State != driver.Held {
			t.Errorf("Acquire after the quarantine: %+v, %v", r, err)
		}
	})
}

func TestSharedClosed(t *testing.T) {
	gate := make(chan struct{})
	defer close(gate)
	l := &fakeLibrary{answer: one, gates: map[string]chan struct{}{"k": gate}}
	b := protocol.New(protocol.Shared(l), protocol.Options{})
	failed := make(chan error)
	go func() {
		_, err := b.Acquire(t.Context(), claim())
		failed <- err
	}()
	testserver.Eventually(t, "the call is under way", func() error {
		return testserver.Not(len(l.requests()) > 0, "not yet")
	})
	b.Close()
	b.Close()
	if err := <-failed; !errors.Is(err, driver.ErrUnknown) {
		t.Errorf("a call that hangs when the Backend is closed: %v", err)
	}
	if _, err := b.Release(t.Context(), claim()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Release after Close: %v", err)
	}
}

// Callers that give up while their requests wait to be sent leave nothing in the line. So however
// impatient they are on a slow server, the next one gets a key that is free.
func TestThoseWhoGaveUpDoNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, patience = 307 * time.Millisecond, 140 * time.Millisecond
		f := &fakeLibrary{answer: func(c protocol.Command) protocol.Reply {
			time.Sleep(slow)
			return one(c)
		}}
		b := protocol.New(protocol.Shared(f), protocol.Options{})
		l, err := holdfast.New(b)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if lock, err := l.TryAcquire(ctx, "k"); err == nil {
				lock.Release(t.Context())
			}
			cancel()
		}
		lock, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatalf("nobody has the key, and the server answers: %v", err)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		b.Close()
	})
}
