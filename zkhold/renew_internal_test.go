package zkhold

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// fakeBackend has f use a Backend on a server that is only played, in fake time, and a claim that
// holds its key for the TTL.
func fakeBackend(t *testing.T, ttl time.Duration, f func(*testing.T, *Backend, *claim)) {
	t.Helper()
	slowBackend(t, ttl, new(atomic.Int64), f)
}

// slowBackend is fakeBackend with a server that answers after a delay.
func slowBackend(t *testing.T, ttl time.Duration, delay *atomic.Int64,
	f func(*testing.T, *Backend, *claim)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := Open(t.Context(), "zookeeper://h",
			WithDialer(func(string, string, time.Duration) (net.Conn, error) {
				client, server := net.Pipe()
				go serve(server, delay)
				return client, nil
			}))
		if err != nil {
			t.Fatal(err)
		}
		c, _ := b.claimOf(driver.Claim{Key: "k", Owner: "o", TTL: ttl})
		b.held(c, &party{Node: b.names().next()}, ttl)
		f(t, b, c)
		time.Sleep(time.Millisecond)
		synctest.Wait() // the client leaks a goroutine if it is closed just when it asks
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A renewal whose transaction succeeds is no renewal unless the session is sure to last as long as
// the longest of the claims. After a time without an answer from the leader it is not, for a while.
func TestRenewalIsSureOfTheSession(t *testing.T) {
	for name, silent := range map[string]bool{"without a gap": false, "after a gap": true} {
		t.Run(name, func(t *testing.T) {
			ttl := share(DefaultSession)
			fakeBackend(t, ttl, func(t *testing.T, b *Backend, c *claim) {
				short, _ := b.claimOf(driver.Claim{Key: "short", Owner: "o", TTL: ttl})
				b.held(short, &party{Node: b.names().next()}, ttl)
				if silent {
					if err := b.prove(); err != nil { // enough for the short one
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					b.session.mu.Lock()
					b.session.last -= 2 * gap(b.session.timeout)
					b.session.mu.Unlock()
				}
				results, err := b.Renew(t.Context(),
					[]driver.Claim{{Key: "k", Owner: "o", TTL: ttl},
						{Key: "short", Owner: "o", TTL: time.Millisecond}})
				held := err == nil && results[0].State == driver.Held
				if held == silent {
					t.Errorf("held: %v, %+v, %v", held, results, err)
				}
			})
		})
	}
}

// A call that ends before the session is sure to last says that, although every request had an
// answer. So does one that has not begun, because an earlier one for its key waits; what it was to
// do is known not to have happened.
func TestCallSaysThatTheSessionIsUnsure(t *testing.T) {
	ttl := share(DefaultSession)
	fakeBackend(t, ttl, func(t *testing.T, b *Backend, c *claim) {
		b.session.mu.Lock()
		b.session.last -= 2 * gap(b.session.timeout)
		b.session.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, renewed := b.Renew(ctx, []driver.Claim{{Key: "k", Owner: "o", TTL: ttl}})
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, acquired := b.inTurn(ctx, "k", false, func(context.Context) (driver.Result, error) {
			now := driver.LeaseClock()
			return driver.Result{}, b.outlast(b.names().id, now+ttl, now+b.timeout, "k")
		})
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, behind := b.Acquire(ctx, driver.Claim{Key: "k", Owner: "p", TTL: ttl})
		if !errors.Is(behind, errUnsure) || !errors.Is(behind, driver.ErrUnavailable) {
			t.Errorf("behind it: %v; want that the session is not sure to last, and ErrUnavailable",
				behind)
		}
		for call, err := range map[string]error{"Renew": renewed, "Acquire": acquired} {
			if !errors.Is(err, errUnsure) || !errors.Is(err, context.DeadlineExceeded) ||
				!errors.Is(err, driver.ErrUnknown) {
				t.Errorf("%s: %v; want that the session is not sure to last", call, err)
			}
		}
		time.Sleep(b.timeout)
		synctest.Wait()
		if err := b.session.cutOff(true, context.Canceled, "k"); errors.Is(err, errUnsure) {
			t.Errorf("when nothing waits for the session: %v", err)
		}
		b.session.mu.Lock()
		defer b.session.mu.Unlock()
		if n := len(b.session.unsure); n > 0 {
			t.Errorf("%d keys are kept of calls that have ended", n)
		}
	})
}

// While a call waits for the session to be sure, only calls for the same key say so, and none if
// the servers fall silent again: then it is an answer that is missing.
func TestWhoSaysThatTheSessionIsUnsure(t *testing.T) {
	k := driver.Claim{Key: "k", Owner: "o", TTL: 29 * time.Second}
	granted := func(c *claim) answer {
		return answer{state: driver.Held, mine: &party{Node: c.node}}
	}
	for call, wait := range map[string]func(b *Backend, c *claim) error{
		"Renew": func(b *Backend, _ *claim) error {
			results, err := b.Renew(context.Background(), []driver.Claim{k})
			if err == nil { // it and its part have the same time
				err = results[0].Err
			}
			return err
		},
		"Renew on new terms": func(b *Backend, c *claim) error {
			p := &plan{slot: &slot{}, lock: new(lock)}
			_, err := b.renewedAs(k, c, p, b.names(), granted(c), driver.LeaseClock())
			return err
		},
		"Acquire": func(b *Backend, c *claim) error {
			a := &acquisition{b: b, mine: c, Claim: k, start: driver.LeaseClock()}
			_, err := a.finish(&plan{slot: &slot{}, lock: new(lock)}, b.names(), granted(c))
			return err
		},
	} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, silent %v", call, silent), func(t *testing.T) {
				var delay atomic.Int64
				slowBackend(t, k.TTL, &delay, func(t *testing.T, b *Backend, c *claim) {
					b.session.mu.Lock()
					b.session.last -= 2 * gap(b.session.timeout)
					b.session.mu.Unlock()
					ended := make(chan error)
					go func() { ended <- wait(b, c) }()
					time.Sleep(time.Second)
					if silent {
						delay.Store(int64(4 * time.Second))
					}
					time.Sleep(2 * time.Second)
					for key, says := range map[string]bool{"k": !silent, "other": false} {
						err := unansweredCall(t.Context(), b, key)
						if !errors.Is(err, driver.ErrUnknown) || errors.Is(err, errUnsure) != says {
							t.Errorf("for %q: %v; want that the session is not sure to last: %v", key, err,
								says)
						}
					}
					delay.Store(0)
					if err := <-ended; !errors.Is(err, driver.ErrUnknown) {
						t.Errorf("it has not waited: %v", err)
					}
				})
			})
		}
	}
}

// unansweredCall is the error of a call for the key whose context ends while it is under way.
func unansweredCall(ctx context.Context, b *Backend, key string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err := b.inTurn(ctx, key, false, func(context.Context) (driver.Result, error) {
		time.Sleep(time.Second)
		return driver.Result{}, nil
	})
	return err
}

// What counts as a gap is the time from the last request that was answered to the next answer. The
// Backend asks twice in the longest time without a gap.
func TestSilenceThatIsAGap(t *testing.T) {
	for late, want := range map[time.Duration]bool{0: false, time.Millisecond: true} {
		// From when the next request comes the server is silent for half a gap, or a bit longer.
		silence := DefaultSession/24 + late
		t.Run(silence.String(), func(t *testing.T) {
			var delay atomic.Int64
			slowBackend(t, time.Second, &delay, func(t *testing.T, b *Backend, _ *claim) {
				time.Sleep(gap(DefaultSession)) // it has asked a few times by then
				synctest.Wait()
				b.session.mu.Lock()
				since, last := b.session.since, b.session.last
				b.session.mu.Unlock()
				delay.Store(int64(silence))
				time.Sleep(last + gap(DefaultSession)/2 - driver.LeaseClock() + time.Nanosecond)
				synctest.Wait()
				delay.Store(0)
				time.Sleep(silence)
				synctest.Wait()
				b.session.mu.Lock()
				defer b.session.mu.Unlock()
				if got := b.session.since != since; got != want || b.session.last == last {
					t.Errorf("the time without a gap begins anew: %v; want %v", got, want)
				}
			})
		})
	}
}

// A renewal of new terms, too, is none unless the session is sure to last.
func TestRenewalOfNewTermsIsSureOfTheSession(t *testing.T) {
	ttl := share(DefaultSession)
	fakeBackend(t, ttl, func(t *testing.T, b *Backend, c *claim) {
		b.session.mu.Lock()
		b.session.last -= 2 * gap(b.session.timeout)
		b.session.mu.Unlock()
		p := &plan{slot: &slot{}, lock: new(lock)}
		r, err := b.renewedAs(driver.Claim{Key: "k", Owner: "o", TTL: ttl}, c, p, b.names(),
			answer{state: driver.Held, mine: &party{Node: c.node}}, driver.LeaseClock())
		if !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("%+v, %v; want ErrUnknown", r, err)
		}
	})
}

// An answer that says that the node is there comes too late for a claim that is over, was ended, or
// has another node by now.
func TestRenewedTooLate(t *testing.T) {
	const ttl = 10 * time.Second
	for name, change := range map[string]func(b *Backend, c *claim){
		"in time":      nil,
		"over":         func(_ *Backend, c *claim) { c.deadline = driver.LeaseClock() },
		"ending":       func(_ *Backend, c *claim) { c.ending = true },
		"another node": func(_ *Backend, c *claim) { c.node += "1" },
		"forgotten":    func(b *Backend, c *claim) { delete(b.claims, c.identity) },
	} {
		t.Run(name, func(t *testing.T) {
			fakeBackend(t, ttl, func(t *testing.T, b *Backend, c *claim) {
				b.mu.Lock()
				k, want := known{mine: c, node: c.node}, driver.Held
				if change != nil {
					change(b, c)
					want = driver.Lost
				}
				b.mu.Unlock()
				if state := b.renewed(k, ttl); state != want {
					t.Errorf("%v; want %v", state, want)
				}
			})
		})
	}
}

// A node that another session has made says nothing of the claim's session.
func TestRenewalLooksAtTheOwner(t *testing.T) {
	const ttl = 10 * time.Second
	for id, want := range map[int64]driver.State{servedSession: driver.Held,
		servedSession + 1: driver.Lost} {
		fakeBackend(t, ttl, func(t *testing.T, b *Backend, c *claim) {
			r := &renewal{b: b, claims: []driver.Claim{{Key: "k", Owner: "o", TTL: ttl}},
				results: make([]driver.Result, 1)}
			r.check(id, known{mine: c, node: c.node})
			if got := r.results[0]; got.State != want || got.Err != nil {
				t.Errorf("in session %d: %+v; want %v", id, got, want)
			}
		})
	}
}

// The node of a former session may still be there, and go at any time. So it is not enough that it
// is there.
func TestRenewalAfterAFormerSession(t *testing.T) {
	const ttl = 10 * time.Second
	fakeBackend(t, ttl, func(t *testing.T, b *Backend, c *claim) {
		b.session.mu.Lock()
		b.session.id++
		b.session.mu.Unlock()
		results, err := b.Renew(t.Context(), []driver.Claim{{Key: "k", Owner: "o", TTL: ttl}})
		if err == nil && results[0].State == driver.Held {
			t.Error("it is renewed by the node of a session that has ended")
		}
	})
}

// A notice may be faster than the answer that the claim is in the queue. The claim ends in its time
// then, too.
func TestNoticeBeforeTheAnswer(t *testing.T) {
	const presence = 3 * time.Second
	fakeBackend(t, presence, func(t *testing.T, b *Backend, _ *claim) {
		c, _ := b.claimOf(driver.Claim{Key: "other", Owner: "o", TTL: time.Minute})
		p := &party{Node: b.names().next()}
		b.mu.Lock()
		c.phase, c.node = waits, p.Node // as after an earlier answer
		b.mu.Unlock()
		b.granted(c.identity, p.Node, grant{Token: 1})
		start := driver.LeaseClock()
		b.waiting(c, p, presence)
		b.mu.Lock()
		defer b.mu.Unlock()
		if c.phase != holds || c.timer == nil || c.deadline != start+presence {
			t.Errorf("it ends in %v, by a timer: %v; want in %v", c.deadline-start, c.timer != nil,
				presence)
		}
	})
}

// However long the root is, the transaction of a renewal is as small as is said.
func TestChecksAreSmall(t *testing.T) {
	for _, root := range []string{"/a", DefaultRoot, "/" + strings.Repeat("x", 300),
		"/" + strings.Repeat("x", 8000)} {
		b := &Backend{root: root, instance: rand.Text()}
		b.nodes.Store(1 << 40)
		n := b.checked()
		// The kind of the operation, whether it is the last, and an error; then two lengths.
		each := 4 + 1 + 4 + 4 + len(b.slotPath("000")+"/"+b.names().next()) + 4
		if n < 1 || n > 1 && n*each > maxChecks {
			t.Errorf("below a root of %d bytes %d checks of %d bytes are one transaction", len(root), n,
				each)
		}
	}
}

// A late notice may be of a grant that was over when the claim queued again, or was released. It
// makes no holder.
func TestLateNotice(t *testing.T) {
	for name, test := range map[string]struct {
		node   string
		ending bool
		want   phase
	}{
		"in time":     {"new", false, holds},
		"former node": {"former", false, waits},
		"released":    {"new", true, waits},
	} {
		b := &Backend{claims: make(map[identity]*claim)}
		told := 0
		b.Notify(func(driver.Notice) { told++ })
		c := &claim{identity: identity{"k", "o"}, phase: waits, node: "new", ending: test.ending}
		b.claims[c.identity] = c
		b.granted(c.identity, test.node, grant{Token: 1})
		if c.phase != test.want || told == 1 != (test.want == holds) {
			t.Errorf("%s: phase %v, and %d notices", name, c.phase, told)
		}
	}
}

// When a slot counts as known, and in which version. A slot that an operator has made anew may come
// to the same version again, so it counts for a moment only.
func TestWhatIsRecalled(t *testing.T) {
	holder := func(owners ...string) map[string]*lock {
		l := new(lock)
		for _, owner := range owners {
			l.Holders = append(l.Holders, &party{Owner: owner, Node: "mine-" + owner})
		}
		return map[string]*lock{"k": l}
	}
	mine := func(node string) bool { return strings.HasPrefix(node, "mine-") }
	for name, test := range map[string]struct {
		version, want  int32
		locks          map[string]*lock
		owner          string
		ours           func(string) bool
		reads          int
		after          time.Duration
		erred, unknown bool
	}{
		"free": {version: 7, want: 8, reads: trusted},
		"its own": {version: 7, want: 8, reads: trusted, locks: holder("o"),
			owner: "o"},
		"before it wraps":        {version: wrapping, want: 0, reads: trusted},
		"in time":                {version: 7, want: 8, reads: trusted, after: recallTime},
		"too late":               {reads: trusted, after: recallTime + 1, unknown: true},
		"not read often enough":  {reads: trusted - 1, unknown: true},
		"after an error":         {reads: trusted, erred: true, unknown: true},
		"held, for acquisitions": {reads: trusted, locks: holder("o"), unknown: true},
		"another's":              {reads: trusted, locks: holder("o"), owner: "p", unknown: true},
		"shared": {reads: trusted, locks: holder("o", "p"), owner: "o",
			unknown: true},
		"of a former session": {reads: trusted, locks: holder("o"), owner: "o", unknown: true,
			ours: func(string) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := new(recall)
				s := &slot{path: "/s", version: test.version, record: record{Locks: test.locks}}
				r.wrote(s)
				for range test.reads {
					r.found("/s", r.slots["/s"].version)
				}
				if test.erred {
					r.erred("/s")
				}
				time.Sleep(test.after)
				if test.ours == nil {
					test.ours = mine
				}
				got := r.take("/s", test.owner, test.ours)
				if (got == nil) != test.unknown || got != nil && got.version != test.want {
					t.Errorf("it is known as %+v; want nil: %v, or version %d", got, test.unknown, test.want)
				}
				if r.take("/s", test.owner, test.ours) != nil {
					t.Error("two plans begin with it")
				}
			})
		})
	}
}
