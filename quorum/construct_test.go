package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// What is not allowed is refused at construction, with the value and what is allowed in the error.
func TestNewRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 10)
		nodes := backends(c.dial())
		for _, test := range []struct {
			name    string
			nodes   []driver.Backend
			options []quorum.Option
			want    string
		}{
			{"no nodes", nil, nil, "at least 1"},
			{"ten nodes", nodes, nil, "10 backends: at most 9"},
			{"a nil", []driver.Backend{nodes[0], nil, nodes[2]}, nil,
				"backend 2 is nil: open it first"},
			{"a name too few", nodes[:3], []quorum.Option{quorum.WithNames("a", "b")},
				"2 names for 3"},
			{"a negative guard", nodes[:3], []quorum.Option{quorum.WithGuard(-1)}, "guard -1ns"},
			{"a negative timeout", nodes[:3], []quorum.Option{quorum.WithNodeTimeout(-1)},
				"timeout -1ns"},
			{"a timeout over the guard", nodes[:3],
				[]quorum.Option{quorum.WithNodeTimeout(2 * time.Minute)},
				"2m0s is longer than the guard 1m0s"},
			{"a nil option", nodes[:3], []quorum.Option{quorum.WithGuard(0), nil},
				"option 2 is nil: leave it out"},
			{"too much drift", nodes[:3], []quorum.Option{quorum.WithDrift(0.5)}, "drift 0.5"},
		} {
			if _, err := quorum.New(test.nodes, test.options...); !errors.Is(err,
				driver.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v; want ErrInvalid with %q", test.name, err, test.want)
			}
		}
	})
}

// A claim that a Quorum will never grant is invalid, and that is known before anything is locked.
// Nothing is sent for it.
func TestTTLThatIsNotAllowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, test := range []struct {
			option quorum.Option
			ttl    time.Duration
			want   string // empty: it is allowed
		}{
			{quorum.WithGuard(9 * time.Second), 10 * time.Second,
				"TTL 10s is longer than the restart quarantine of 9s"},
			{quorum.WithGuard(10 * time.Second), 10 * time.Second, ""},
			{quorum.WithGuard(0), 1000 * time.Hour, ""},
			{quorum.WithNodeTimeout(time.Second), time.Second,
				"TTL 1s is too short for a node timeout of 1s"},
			{quorum.WithNodeTimeout(time.Second), 1012 * time.Millisecond,
				"TTL 1.012s is too short for a node timeout of 1s"},
			{quorum.WithNodeTimeout(time.Second), 1013 * time.Millisecond, ""},
		} {
			a := newCluster(t, 3).client(test.option)
			claim := a.claim()
			claim.TTL = test.ttl
			early := a.CheckTTL(test.ttl)
			_, late := a.Acquire(context.Background(), claim)
			results, err := a.Renew(context.Background(), []driver.Claim{claim})
			if err != nil {
				t.Fatal(err)
			}
			for call, err := range map[string]error{"CheckTTL": early, "Acquire": late,
				"Renew": results[0].Err} {
				if test.want == "" {
					if err != nil {
						t.Errorf("%s with TTL %v: %v; want no error", call, test.ttl, err)
					}
				} else if !errors.Is(err, driver.ErrInvalid) || !driver.Permanent(err) ||
					!strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: %v; want ErrInvalid with %q", call, err, test.want)
				}
			}
		}
	})
}

// R10: the nodes are independent. A server that is listed twice would have two votes, so it is
// refused: at once, or, if it was out of reach then, as soon as it says who it is. From then on it
// has one vote.
func TestR10_SameServerTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		conns, again := c.dial(), c.dial()
		twice := []driver.Backend{conns[0], conns[1], again[1], conns[2]}
		_, err := quorum.New(twice, quorum.WithNames("a", "b", "c", "d"))
		if !errors.Is(err, quorum.ErrSameServer) || !strings.Contains(err.Error(), "b and c") {
			t.Errorf("New with one server twice: %v; want ErrSameServer for b and c", err)
		}

		// Three of the five are one server.
		conns, second, third := c.dial(), c.dial(), c.dial()
		c.freeze(0)
		q, err := quorum.New([]driver.Backend{conns[1], conns[0], conns[2], second[0], third[0]},
			quorum.WithGuard(0))
		if err != nil {
			t.Fatalf("New with a server twice that does not answer: %v; want no error yet", err)
		}
		defer q.Close()
		c.thaw(0)
		a := &client{Quorum: q, conns: conns, cluster: c}
		for range 3 {
			claim := a.claim()
			if r, err := a.Acquire(context.Background(), claim); err == nil &&
				r.State == driver.Held {
				a.release(claim, driver.Held)
			}
			time.Sleep(2 * time.Second)
		}
		for i, want := range []quorum.NodeState{quorum.Up, quorum.Up, quorum.Up, quorum.Duplicate,
			quorum.Duplicate} {
			if n := a.Status().Nodes[i]; n.State != want {
				t.Errorf("node %d is %v; want %v", i+1, n.State, want)
			}
		}
		claim := a.claim()
		a.hold(claim)
		a.release(claim, driver.Held)
		a.release(a.claim(), driver.Lost) // of which nothing is known, so it may be on any node
		for _, n := range a.Status().Nodes {
			if n.Owed > 0 {
				t.Errorf("%s is owed %d releases; want none, it will never be asked", n.Name, n.Owed)
			}
		}
		c.refuse(1)
		if err := a.fail(a.claim()); !strings.Contains(err.Error(),
			"same server twice: it is also node 2") {
			t.Errorf("with two servers, one of them three times: %v; want that it has one vote",
				err)
		}
	})
}

// R10: a server that is listed twice tells of a grant on both connections, and has one vote.
func TestR10_NoticesOfAServerThatIsListedTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		holder := a.claim()
		a.hold(holder)
		rest()
		conns := c.dial()
		conns[1] = c.dial()[0]
		c.freeze(0)
		q, err := quorum.New(backends(conns), quorum.WithGuard(0))
		if err != nil {
			t.Fatalf("New with a server twice that does not answer: %v; want no error yet", err)
		}
		defer q.Close()
		c.thaw(0)
		b := &client{Quorum: q, conns: conns, cluster: c}
		in, waiting := b.inbox(), b.queued()
		rest() // until nodes are asked again who they are, when they have answered
		b.busy(waiting)
		time.Sleep(5 * roundTrip)
		if n := b.Status().Nodes[1]; n.State != quorum.Duplicate {
			t.Fatalf("node 2 is %v; the case is that it is known to be node 1", n.State)
		}
		c.do(func() { c.servers[0].release(holder) })
		notice := driver.Notice{Kind: driver.Granted, Key: "k", Owner: waiting.Owner, Block: 1}
		c.do(func() { notice.Token = c.servers[0].keys["k"].token })
		for _, conn := range conns[:2] {
			conn.heard(notice)
		}
		if n := c.told(in, 1); n.Kind == driver.Granted {
			t.Errorf("told %+v; want no grant: the key is held by %v", n, c.holders("k"))
		}
		b.Release(context.Background(), waiting)
		a.Release(context.Background(), holder)
	})
}

// Every number of nodes works, even with as many of them down as a majority can spare.
func TestEveryNumberOfNodes(t *testing.T) {
	for n := 1; n <= quorum.MaxNodes; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, n)
				a, b := c.client(), c.client()
				need := n/2 + 1
				if s := a.Status(); s.Need != need || len(s.Nodes) != n {
					t.Errorf("%d of %d nodes needed; want %d of %d", s.Need, len(s.Nodes), need, n)
				}
				for gone := range n - need + 2 {
					if gone > 0 {
						c.refuse(gone - 1)
					}
					if gone > n-need {
						err := a.fail(a.claim())
						if !errors.Is(err, driver.ErrUnavailable) ||
							!strings.Contains(err.Error(),
								fmt.Sprintf("%d of %d nodes agreed, %d needed", need-1, n, need)) {
							t.Errorf("with %d of %d nodes gone: %v; want unavailable", gone, n, err)
						}
						continue
					}
					claim := a.claim()
					a.hold(claim)
					b.busy(b.claim())
					a.renew(claim, driver.Held)
					a.release(claim, driver.Held)
					rest()
				}
			})
		})
	}
}

// An even number of nodes is allowed, and Check explains it; so are fewer than three, and a
// quarantine that is off.
func TestCheckExplainsTheShape(t *testing.T) {
	for n, want := range map[int]string{1: "few-nodes", 2: "few-nodes", 3: "", 4: "even-nodes",
		5: "", 6: "even-nodes"} {
		for _, guard := range []time.Duration{0, time.Minute} {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, n)
				findings, err := c.client(quorum.WithGuard(guard)).Check(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				var codes []string
				for _, f := range findings {
					codes = append(codes, f.Code)
					if f.Summary == "" || f.Advice == "" || f.Severity == 0 {
						t.Errorf("finding %+v; want a severity, a summary and an advice", f)
					}
				}
				all := strings.Join(codes, " ")
				if off := guard == 0; strings.Contains(all, "no-quarantine") != off ||
					!strings.Contains(all, want) || want == "" && strings.Contains(all, "nodes") {
					t.Errorf(
						"%d nodes, guard %v: findings %q; want %q, and no-quarantine if it is off",
						n, guard, all, want)
				}
			})
		}
	}
}

// Nodes may be of different kinds.
func TestMixedKinds(t *testing.T) {
	file, err := filehold.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	q, err := quorum.New([]driver.Backend{memhold.New(), file, memhold.New()},
		quorum.WithNodeTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	l, err := holdfast.New(q)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var last holdfast.Token
	for range 3 {
		lock, err := l.Acquire(context.Background(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if lock.Token() <= last {
			t.Errorf("token %v after %v, want a larger one", lock.Token(), last)
		}
		last = lock.Token()
		if err := lock.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// New does not fail because a majority is out of reach: it returns within a second, the first
// acquisition says what is wrong, and when the nodes are back, it works.
func TestMajorityUnreachableAtStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		c.freeze(0, 1)
		c.refuse(2)
		var a *client
		if d := took(func() { a = c.client() }); d > time.Second+roundTrip {
			t.Errorf("New took %v; want at most a second", d)
		}
		if err := a.fail(a.claim()); !strings.Contains(err.Error(),
			"2 of 5 nodes agreed, 3 needed") {
			t.Errorf("Acquire: %v; want how many nodes there are", err)
		}
		c.thaw(0, 1)
		c.restart(false, 2)
		rest()
		claim := a.claim()
		a.hold(claim)
		a.release(claim, driver.Held)
	})
}

// R33: nodes that were all started just now are in quarantine, and the error says for how long, to
// the user of a Locker too.
func TestR33_FreshNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		c.restart(true, 0, 1, 2, 3, 4)
		a := c.client(quorum.WithGuard(30 * time.Second))
		l, err := holdfast.New(a.Quorum)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		time.Sleep(10 * time.Second)
		_, err = l.TryAcquire(context.Background(), "k")
		var q *driver.QuarantineError
		var e *quorum.Error
		if !errors.As(err, &q) || q.Remaining > 20*time.Second || q.Remaining < 19*time.Second ||
			!errors.As(err, &e) || e.Got != 0 {
			t.Errorf("TryAcquire: %v; want quarantine for another 20s, on 5 nodes", err)
		}
		if !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrUnknown) {
			t.Errorf("TryAcquire: %v; want that it had no effect", err)
		}
		time.Sleep(20 * time.Second)
		lock, err := l.TryAcquire(context.Background(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Through a Locker, errors.Is and errors.As tell apart held by another, unavailable, and
// quarantined, also if nodes differ.
func TestErrorsThroughLocker(t *testing.T) {
	const busy, gone, fresh = "busy", "gone", "fresh"
	for _, test := range []struct {
		nodes                             []string // what the other than healthy nodes are
		held, unavailable, unknown, quart bool
		lines                             []string
	}{
		{nodes: []string{busy, busy, busy}, held: true},
		{nodes: []string{busy, busy, busy, gone, gone}, held: true},
		{nodes: []string{gone, gone, gone}, unavailable: true,
			lines: []string{"n1: backend unavailable: connection refused", "n4: granted to us"}},
		{nodes: []string{fresh, fresh, fresh}, unavailable: true, quart: true,
			lines: []string{"n3: backend unavailable: in restart quarantine"}},
		{
			nodes: []string{busy, gone, gone, gone, fresh}, unavailable: true,
			lines: []string{"n1: held by", "n2: backend unavailable: connection refused",
				"n5: backend unavailable: in restart quarantine"},
		},
		{nodes: []string{fresh, gone, gone}, unavailable: true, quart: true},
	} {
		t.Run(strings.Join(test.nodes, " "), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 5)
				for i, is := range test.nodes {
					c.do(func() {
						switch s := c.servers[i]; is {
						case busy:
							s.give("k", "another", time.Minute)
						case gone:
							s.crash(true)
						case fresh:
							s.restart(forgotten)
						}
					})
				}
				a := c.client(quorum.WithGuard(time.Minute),
					quorum.WithNames("n1", "n2", "n3", "n4", "n5"))
				l, err := holdfast.New(a.Quorum, holdfast.WithPrefix(""))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				_, err = l.TryAcquire(context.Background(), "k")
				var e *quorum.Error
				var q *driver.QuarantineError
				var h *holdfast.HeldError
				if got := errors.As(err, &h); got != test.held {
					t.Errorf("held by another: %v; want %v", got, test.held)
				}
				if got := errors.Is(err, holdfast.ErrUnavailable); got != test.unavailable {
					t.Errorf("unavailable: %v; want %v", got, test.unavailable)
				}
				if got := errors.Is(err, holdfast.ErrUnknown); got != test.unknown {
					t.Errorf("unknown: %v; want %v", got, test.unknown)
				}
				if got := errors.As(err, &q); got != test.quart {
					t.Errorf("quarantined: %v; want %v", got, test.quart)
				}
				if got := errors.As(err, &e); got == test.held {
					t.Errorf("an Error about the nodes: %v; want %v", got, !test.held)
				}
				for _, line := range test.lines {
					if !strings.Contains(fmt.Sprint(err), line) {
						t.Errorf("%v: want the line %q in it", err, line)
					}
				}
				if t.Failed() {
					t.Logf("%v", err)
				}
			})
		})
	}
}

// R20: the holder of a lock through a Locker is told of its loss in time, even if all nodes are
// frozen: before another can have the key.
func TestR20_LossIsToldInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		l, err := holdfast.New(a.Quorum, holdfast.WithPrefix(""), holdfast.WithTTL(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		lock, err := l.Acquire(context.Background(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second) // it is renewed
		a.cut(true, 0, 1, 2, 3, 4)
		told := false
		for !told {
			time.Sleep(10 * time.Millisecond)
			select {
			case <-lock.Done():
				told = true
			default:
				b.busy(b.claim())
			}
		}
		a.cut(false, 0, 1, 2, 3, 4)
	})
}

// Close is bounded, whatever the nodes do, and leaves no goroutine behind once their calls return.
func TestCloseWithNodesThatHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		conns := c.dial()
		end := make(chan struct{})
		q, err := quorum.New([]driver.Backend{&deafNode{conns[0], end}, &deafNode{conns[1], end},
			conns[2]}, quorum.WithGuard(0))
		if err != nil {
			t.Fatal(err)
		}
		a := &client{Quorum: q, conns: conns, cluster: c}
		for range 10 {
			go a.Acquire(context.Background(), a.claim())
			time.Sleep(time.Millisecond)
		}
		if d := took(func() { a.Close() }); d > 210*time.Millisecond {
			t.Errorf("Close took %v; want at most four times the node timeout", d)
		}
		close(end) // the bubble sees to it that nothing remains
	})
}
