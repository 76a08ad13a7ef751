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
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum"
)

// Any minority may be down, refusing, hung or slow, and everything keeps its speed from the first
// call on.
func TestR3_MinorityFails(t *testing.T) {
	for _, fault := range []struct {
		name string
		do   func(*server)
	}{
		{"hangs", func(s *server) { s.frozen = true }},
		{"is gone", func(s *server) { s.crash(false) }},
		{"refuses", func(s *server) { s.crash(true) }},
		{"answers after a second", func(s *server) { s.slow = time.Second }},
		{"has a clock that runs away", func(s *server) { s.setClock(time.Hour, 1000) }},
	} {
		for _, n := range []int{3, 5, 7, 9} {
			t.Run(fmt.Sprintf("%d of %d %s", (n-1)/2, n, fault.name), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					c := newCluster(t, n)
					a, b := c.client(), c.client()
					c.do(func() {
						for _, s := range c.servers[:(n-1)/2] {
							fault.do(s)
						}
					})
					for range 5 {
						claim := a.claim()
						c.soon("acquiring", 1, func() { a.hold(claim) })
						c.soon("being refused", 1, func() { b.busy(b.claim()) })
						c.soon("renewing", 1, func() { a.renew(claim, driver.Held) })
						c.soon("releasing", 1, func() { a.release(claim, driver.Held) })
					}
				})
			})
		}
	}
}

// All nodes are asked at once, for the same key, with the same value (R12, R23).
func TestR12R23_AllAtOnceWithOneValue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a := c.client()
		claim := a.claim()
		c.soon("acquiring", 1, func() { a.hold(claim) })
		rest()
		if n := c.holds(claim); n != 5 {
			t.Errorf("held on %d of 5 nodes; want all: %v", n, c.holders("k"))
		}
	})
}

// A majority that does not answer costs the node timeout: the smaller of TTL/10 and 50 ms, or what
// was set.
func TestR13_NodeTimeout(t *testing.T) {
	for _, test := range []struct {
		ttl, set, want time.Duration
	}{
		{10 * time.Second, 0, 50 * time.Millisecond},
		{200 * time.Millisecond, 0, 20 * time.Millisecond},
		{10 * time.Second, 300 * time.Millisecond, 300 * time.Millisecond},
	} {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, 5)
			a := c.client(quorum.WithNodeTimeout(test.set))
			c.freeze(0, 1, 2)
			claim := a.claim()
			claim.TTL = test.ttl
			var err error
			d := took(func() { err = a.fail(claim) })
			if d < test.want || d > test.want*11/10 {
				t.Errorf("TTL %v, timeout set to %v: took %v; want %v", test.ttl, test.set,
					d, test.want)
			}
			if !errors.Is(err, driver.ErrUnknown) {
				t.Errorf("error %v; want that the outcome is unknown", err)
			}
		})
	}
}

// A node whose client library ignores contexts delays nobody.
func TestR13_NodeIgnoresContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		deaf := &deafNode{conn: c.dial()[0], end: make(chan struct{})}
		conns := c.dial()
		q, err := quorum.New([]driver.Backend{deaf, conns[1], conns[2]}, quorum.WithGuard(0))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		defer close(deaf.end)
		a := &client{Quorum: q, conns: conns, cluster: c}
		claim := a.claim()
		a.hold(claim)
		a.renew(claim, driver.Held)
		c.freeze(1)
		var results []driver.Result
		for what, call := range map[string]func(){
			"Acquire": func() { _, err = a.Acquire(context.Background(), a.claim()) },
			"Renew": func() {
				results, err = a.Renew(context.Background(), []driver.Claim{claim})
				err = results[0].Err
			},
			"Release": func() { _, err = a.Release(context.Background(), claim) },
		} {
			if d := took(call); d > 2*60*time.Millisecond || err == nil {
				t.Errorf(
					"%s took %v and returned %v; want an error within the node timeout, or twice that",
					what, d, err)
			}
		}
	})
}

// deafNode never returns from calls about claims.
type deafNode struct {
	*conn
	end chan struct{}
}

func (d *deafNode) Acquire(context.Context, driver.Claim) (driver.Result, error) {
	<-d.end
	return driver.Result{}, errors.New("deaf")
}

func (d *deafNode) Renew(context.Context, []driver.Claim) ([]driver.Result, error) {
	<-d.end
	return nil, errors.New("deaf")
}

func (d *deafNode) Release(context.Context, driver.Claim) (driver.Result, error) {
	<-d.end
	return driver.Result{}, errors.New("deaf")
}

// A claim is held only with a majority and some validity left, measured from before the first
// request (R11, R14, R15, R16). What was granted too late is given back (R18).
func TestR11R14R15R16R18_MajorityTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		// Just short enough, and the connections are not hurt.
		a := c.client(quorum.WithNodeTimeout(9895 * time.Millisecond))
		a.deaf()
		for _, test := range []struct {
			delay time.Duration
			late  bool
		}{
			// The validity of 10 s is 10 s - 100 ms - 2 ms.
			{9890 * time.Millisecond, false},
			{9900 * time.Millisecond, true},
			{10500 * time.Millisecond, true},
		} {
			c.do(func() {
				for _, conn := range a.conns[:2] {
					conn.held = true
				}
			})
			time.AfterFunc(test.delay, func() {
				c.do(func() {
					for _, conn := range a.conns[:2] {
						conn.resume()
					}
				})
			})
			claim := a.claim()
			r, err := a.Acquire(context.Background(), claim)
			if !test.late {
				if err != nil || r.State != driver.Held {
					t.Errorf("answers after %v: %v, %v; want held", test.delay, r.State, err)
				}
				a.release(claim, driver.Held)
				continue
			}
			if !errors.Is(err, quorum.ErrTooLate) || !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("answers after %v: %v, %v; want ErrTooLate", test.delay, r.State, err)
			}
			rest()
			c.clean("k")
		}
		if n := a.Status().TooLate; n != 2 {
			t.Errorf("Status counts %d majorities too late; want 2", n)
		}
	})
}

// A claim that queues is not given back if its majority came too late: it stays in the queues, and
// its caller must know, or nobody would release it.
func TestR18_LateClaimThatQueuesIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(quorum.WithNodeTimeout(9895*time.Millisecond)), c.client()
		a.deaf()
		c.freeze(0, 1)
		time.AfterFunc(9900*time.Millisecond, func() { c.thaw(0, 1) })
		claim := a.claim()
		claim.Queue = true
		_, err := a.Acquire(context.Background(), claim)
		if !errors.Is(err, quorum.ErrTooLate) || !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("Acquire: %v; want ErrTooLate, and ErrUnknown", err)
		}
		rest()
		if n := c.holds(claim); n < 2 {
			t.Errorf("held on %d nodes; want a majority, until its caller releases it", n)
		}
		a.release(claim, driver.Held)
		b.hold(b.claim())
	})
}

// A process that was stopped for a moment reads the nodes' answers after the node timeout. They are
// answers all the same, and a waiter goes on to wait.
func TestAnswersReadLateAreAnswers(t *testing.T) {
	for _, queue := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			c, a, holder := held(t, 3)
			b := c.client()
			b.deaf()
			c.do(func() {
				for _, conn := range b.conns {
					conn.held = true
				}
			})
			time.AfterFunc(55*time.Millisecond, func() { // the node timeout is 50 ms
				c.do(func() {
					for _, conn := range b.conns {
						conn.resume()
					}
				})
			})
			claim := b.claim()
			claim.Queue = queue
			r := b.busy(claim)
			if r.Holder != holder.Owner || (r.Presence > 0) != queue {
				t.Errorf("held by %q, present for %v; want %q, and a presence: %t", r.Holder,
					r.Presence, holder.Owner, queue)
			}
			b.Release(context.Background(), claim)
			a.release(holder, driver.Held)
			rest()
			c.clean("k")
		})
	}
}

// A Locker's host is suspended while its requests are under way. If they were granted too late, the
// Locker gives up and leaves nothing behind (K2).
func TestK2_LateGrantToALockerLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		l, err := holdfast.New(a.Quorum)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c.freeze(0, 1, 2)
		done := make(chan error, 1)
		go func() {
			lock, err := l.Acquire(context.Background(), "k")
			if err == nil {
				err = lock.Release(context.Background())
			}
			done <- err
		}()
		time.Sleep(10 * time.Millisecond) // the requests have arrived; answers have time left
		clock.SimulateSuspend(time.Minute)
		c.thaw(0, 1, 2)
		err = <-done
		rest()
		c.clean("k")
		if n := a.Status().TooLate; n == 0 {
			t.Errorf("Status counts no majority that came too late; Acquire: %v", err)
		}
	})
}

// A process that is stopped between its requests and the replies must not take the lock when it
// goes on (K2).
func TestK2_PauseBeforeReplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		claim := a.claim()
		done := make(chan error, 1)
		c.do(func() {
			for _, conn := range a.conns {
				conn.held = true
			}
		})
		go func() {
			_, err := a.Acquire(context.Background(), claim)
			done <- err
		}()
		time.Sleep(roundTrip) // all have granted it
		if n := c.holds(claim); n != 5 {
			t.Fatalf("held on %d of 5 nodes; want all", n)
		}
		clock.SimulateSuspend(time.Minute) // the process, and not the servers
		c.do(func() {
			for _, s := range c.servers {
				s.setClock(time.Minute, 1)
			}
			for _, conn := range a.conns {
				conn.resume()
			}
		})
		err := <-done
		if !errors.Is(err, quorum.ErrTooLate) {
			t.Errorf("Acquire after a pause of a minute: %v; want ErrTooLate", err)
		}
		b.hold(b.claim())
	})
}

// Without a majority, everything that was granted is given back at once, also where no answer came
// (R17, R24).
func TestR17_FailureReleasesAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		c.freeze(0, 1, 2)
		claim := a.claim()
		err := a.fail(claim)
		if !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("error %v; want that the outcome is unknown", err)
		}
		time.Sleep(roundTrip)
		if n := c.holds(claim); n != 0 {
			t.Errorf("a round trip after the failure still held on %d nodes; want none", n)
		}
		// The requests still hang in the frozen nodes. When these go on, the releases follow.
		c.thaw(0, 1, 2)
		time.Sleep(roundTrip)
		c.clean("k")
		b.hold(b.claim())
	})
}

// R24: a claim that fails frees what it got at once, so a third one does not have to wait until
// something expires.
func TestR24_LoserFreesParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		c.crash(0, 1)
		holder := a.claim()
		a.hold(holder)
		c.restart(false, 0, 1)
		loser := b.claim()
		b.busy(loser)
		time.Sleep(roundTrip)
		if n := c.holds(loser); n != 0 {
			t.Errorf("the loser still holds %d nodes a round trip later; want none: %v",
				n, c.holders("k"))
		}
	})
}

// R25: a release may go to nodes that never had the key, and may be repeated.
func TestR25_ReleaseAnywhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a := c.client()
		a.release(a.claim(), driver.Lost)
		c.crash(3, 4)
		claim := a.claim()
		a.hold(claim)
		c.restart(false, 3, 4)
		other := c.client()
		other.release(other.claim(), driver.Lost)
		a.renew(claim, driver.Held)
		a.release(claim, driver.Held)
		a.release(claim, driver.Lost)
		rest()
		c.clean("k")
	})
}

// R26: of several claims that ask at the same time at most one wins. While it holds a majority, no
// other does.
func TestR1R26_OneWins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const contenders, rounds = 8, 50
		c := newCluster(t, 5)
		won := 0
		var clients []*client
		for range contenders {
			clients = append(clients, c.client())
		}
		for range rounds {
			type outcome struct {
				who   int
				claim driver.Claim
				state driver.State
			}
			outcomes := make(chan outcome)
			for i, cl := range clients {
				claim := cl.claim()
				go func() {
					r, err := cl.Acquire(context.Background(), claim)
					if err != nil {
						t.Errorf("Acquire: %v", err)
					}
					outcomes <- outcome{i, claim, r.State}
				}()
			}
			var winner *outcome
			for range contenders {
				o := <-outcomes
				if o.state == driver.Held && winner != nil {
					t.Fatal("two of the contenders hold the key")
				} else if o.state == driver.Held {
					winner = &o
				}
			}
			rest()
			if winner == nil {
				c.clean("k")
				continue
			}
			won++
			for i, cl := range clients {
				if i != winner.who {
					cl.busy(cl.claim())
				}
			}
			clients[winner.who].release(winner.claim, driver.Held)
			rest()
		}
		if won == 0 {
			t.Errorf("nobody has won in %d rounds; want one winner at least", rounds)
		}
	})
}

// R2, R27: a holder that is cut off from the majority costs at most its TTL.
func TestR2R27_PartitionCostsTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		claim := a.claim()
		a.hold(claim)
		a.cut(true, 0, 1, 2, 3, 4)
		time.Sleep(claim.TTL - roundTrip)
		b.busy(b.claim())
		time.Sleep(2 * roundTrip)
		b.hold(b.claim())
	})
}

// R28 is a limit: if the network cuts off each holder from the majority, again and again, nobody
// gets the key for as long as that goes on. Afterwards it works.
func TestR28_ContinuousPartitions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		for range 20 {
			a.hold(a.claim())
			a.cut(true, 0, 1, 2) // before it can release
			b.busy(b.claim())
			time.Sleep(11 * time.Second)
			a.cut(false, 0, 1, 2)
		}
		b.hold(b.claim())
	})
}

// Busy and unavailable differ: busy needs the answers of a majority.
func TestBusyOrUnavailable(t *testing.T) {
	for _, test := range []struct {
		name  string
		setup func(c *cluster, holder *client)
		want  error // nil: busy
		print []string
	}{
		{"held by another", func(c *cluster, h *client) { h.hold(h.claim()) }, nil, nil},
		{"held by another, two gone", func(c *cluster, h *client) {
			h.hold(h.claim())
			c.crash(3, 4)
		}, nil, nil},
		{"three refuse", func(c *cluster, h *client) {
			c.do(func() {
				for _, s := range c.servers[:3] {
					s.crash(true)
				}
			})
		}, driver.ErrUnavailable, []string{
			"2 of 5 nodes agreed, 3 needed",
			"n1: backend unavailable: connection refused",
			"n2: backend unavailable: connection refused",
			"n3: backend unavailable: connection refused",
			"; n4: granted to us; n5: granted to us",
		}},
		{"three hang", func(c *cluster, h *client) {
			c.freeze(0, 1, 2)
		}, driver.ErrUnknown, []string{
			"2 of 5 nodes agreed, 3 needed",
			"n1: outcome unknown: gave no answer within 50ms",
		}},
		{"held by another, three refuse", func(c *cluster, h *client) {
			h.hold(h.claim())
			rest()
			c.do(func() {
				for _, s := range c.servers[:3] {
					s.crash(true)
				}
			})
		}, driver.ErrUnavailable, []string{
			"0 of 5 nodes agreed, 3 needed",
			"n3: backend unavailable: connection refused",
			`n4: held by "0.1"`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 5)
				holder := c.client()
				a := c.client(quorum.WithNames("n1", "n2", "n3", "n4", "n5"))
				test.setup(c, holder)
				if test.want == nil {
					if r := a.busy(a.claim()); r.Holder != "0.1" || r.ExpiresIn <= 9*time.Second ||
						r.ExpiresIn > 10*time.Second {
						t.Errorf("busy, held by %q for %v; want held by 0.1 for about 10 s",
							r.Holder, r.ExpiresIn)
					}
					return
				}
				err := a.fail(a.claim())
				if !errors.Is(err, test.want) {
					t.Errorf("error %v; want one that is %q", err, test.want)
				}
				var e *quorum.Error
				if !errors.As(err, &e) || e.Need != 3 || len(e.Nodes) != 5 {
					t.Fatalf("error %v; want an *Error about 3 of 5 nodes", err)
				}
				for _, line := range test.print {
					if text := err.Error(); !strings.Contains(text, line) ||
						strings.Contains(text, "\n") {
						t.Errorf("error %q: want one line with %q", text, line)
					}
				}
			})
		})
	}
}

// Permanent errors of nodes make the error of the Quorum permanent if they alone prevent a
// majority.
func TestPermanentError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		conns := c.dial()
		denied := &deniedNode{conns[0]}
		for _, test := range []struct {
			nodes []driver.Backend
			want  bool
		}{
			{[]driver.Backend{denied, &deniedNode{conns[1]}, conns[2]}, true},
			{[]driver.Backend{denied, conns[1], conns[2]}, false},
		} {
			c.restart(false, 1)
			q, err := quorum.New(test.nodes, quorum.WithGuard(0))
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			c.crash(1)
			a := &client{Quorum: q, conns: conns, cluster: c}
			if err := a.fail(a.claim()); driver.Permanent(err) != test.want {
				t.Errorf("%v: permanent %v; want %v", err, driver.Permanent(err), test.want)
			}
		}
	})
}

type deniedNode struct{ *conn }

func (d *deniedNode) Acquire(context.Context, driver.Claim) (driver.Result, error) {
	return driver.Result{}, &driver.Error{Permanent: true, Err: errors.New("wrong password")}
}

// The caller's context ends its wait, not its requests.
func TestContextEndsOnlyTheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a := c.client()
		for delay := time.Duration(0); delay <= 2*roundTrip; delay += roundTrip / 20 {
			ctx, cancel := context.WithTimeout(context.Background(), delay)
			claim := a.claim()
			r, err := a.Acquire(ctx, claim)
			cancel()
			if err == nil {
				if r.State != driver.Held {
					t.Errorf("after %v: %v; want held", delay, r.State)
				}
				a.release(claim, driver.Held)
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: %v; want the context's error", delay, err)
			}
			time.Sleep(2 * roundTrip)
			c.clean("k")
		}
	})
}

// Claims that are not allowed are refused before anything is sent.
func TestClaimRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client(quorum.WithGuard(20 * time.Second))
		for _, ttl := range []time.Duration{0, -time.Second, 20*time.Second + 1} {
			claim := a.claim()
			claim.TTL = ttl
			if err := a.fail(claim); !errors.Is(err, driver.ErrInvalid) ||
				!strings.Contains(err.Error(), ttl.String()) {
				t.Errorf("TTL %v: %v; want ErrInvalid and the TTL named", ttl, err)
			}
			good := a.claim()
			a.hold(good)
			results, err := a.Renew(context.Background(), []driver.Claim{claim, good, claim})
			if err != nil {
				t.Fatal(err)
			}
			if !driver.Permanent(results[0].Err) || results[1].State != driver.Held ||
				!driver.Permanent(results[2].Err) {
				t.Errorf("TTL %v: Renew of it, a good one and it again: %v; want permanent errors, and held",
					ttl, results)
			}
			a.release(good, driver.Held)
		}
	})
}

// An acquisition that fails may have had an effect if the nodes that granted it and those that did
// not answer make a majority, and had none if they are one less.
func TestFailureIsUnknownIfAMajorityIsPossible(t *testing.T) {
	for _, n := range []int{3, 5} {
		for hung := range 3 {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, n)
				a := c.client()
				need := n/2 + 1
				granting := need - 1 - hung // one less than needed, with those that hang
				unknown := hung == 2
				if unknown {
					granting++
				}
				if granting < 0 {
					return
				}
				c.freeze(nodesFrom(granting, hung)...)
				refusing := nodesFrom(granting+hung, n-granting-hung)
				c.crash(refusing...)
				c.do(func() {
					for _, i := range refusing {
						c.servers[i].refusing = true
					}
				})
				err := a.fail(a.claim())
				if errors.Is(err, driver.ErrUnknown) != unknown {
					t.Errorf("%d of %d nodes grant, %d hang: %v", granting, n, hung, err)
				}
				c.thaw(nodesFrom(granting, hung)...)
				rest()
				c.restart(false, refusing...)
				time.Sleep(3 * time.Second)
				c.clean("k")
			})
		}
	}
}

// nodesFrom returns n nodes from the first one on.
func nodesFrom(first, n int) (nodes []int) {
	for i := range n {
		nodes = append(nodes, first+i)
	}
	return nodes
}

// What has the key by asking is told nothing: a notice would be about nothing.
func TestNoNoticeToWhatHasTheKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		in := a.inbox()
		claim := a.queued()
		a.hold(claim)
		rest()
		select {
		case n := <-in:
			t.Errorf("told %+v", n)
		default:
		}
		a.release(claim, driver.Held)
	})
}
