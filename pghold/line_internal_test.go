package pghold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// fakeDatabase grants and releases everything. Requests for the key "hangs" get no answer.
type fakeDatabase struct {
	free chan struct{} // closed when a connection is free; nil if one is

	mu   sync.Mutex
	sent []string
}

func (d *fakeDatabase) query(ctx context.Context, statement string, args []any,
	row func(scan func(...any) error) error) (sent bool, err error) {
	if d.free != nil {
		select {
		case <-d.free:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if err := maySend(ctx); err != nil {
		return false, err
	}
	key, call := string(args[0].([]byte)), "acquire"
	if statement == releaseStatement {
		call = "release"
	}
	d.mu.Lock()
	d.sent = append(d.sent, call+" "+key)
	d.mu.Unlock()
	if key == "hangs" {
		<-ctx.Done()
		return true, ctx.Err()
	}
	return true, row(func(values ...any) error {
		*values[0].(*string) = "held"
		return nil
	})
}

func (d *fakeDatabase) want() error { return errExhausted }
func (d *fakeDatabase) close()      {}

func (d *fakeDatabase) requests() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.sent)
}

func fake(t *testing.T) (*fakeDatabase, *Backend) {
	d := new(fakeDatabase)
	b := newBackend(d, "fake", config{quiet: true})
	b.matched.Store(true)
	t.Cleanup(func() { b.Close() })
	return d, b
}

func claimFor(key, owner string) driver.Claim {
	return driver.Claim{Key: key, Owner: owner, TTL: time.Minute}
}

// callFor makes a call whose caller gives up after that time.
func callFor(t *testing.T, d time.Duration, call func(context.Context)) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	go func() {
		defer cancel()
		call(ctx)
	}()
	synctest.Wait()
}

// kept is how many requests are in the line, and what it remembers of keys and releases.
func (l *line) kept() (requests, keys, releases int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued, len(l.last), len(l.releases)
}

// Callers that give up on a key that hangs leave nothing in its line, and nothing that counts:
// other keys are served however many they were. Only the last release of a claim stays.
func TestLineForgetsThoseWhoGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := fake(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range maxQueued - 3 { // which leaves room for what follows
			go b.Acquire(ctx, claimFor("hangs", fmt.Sprint("owner", i)))
		}
		synctest.Wait()
		// The third of these gives up first, and the first one last.
		for _, after := range []time.Duration{3 * time.Second, 2 * time.Second, time.Second} {
			callFor(t, after, func(ctx context.Context) {
				if _, err := b.Release(ctx, claimFor("hangs", "held")); !errors.Is(err,
					driver.ErrUnknown) {
					t.Errorf("Release behind a request that hangs: %v; want %v", err,
						driver.ErrUnknown)
				}
			})
		}
		time.Sleep(patience - time.Second)
		if requests, keys, releases := b.line.kept(); requests != 2 || keys != 1 || releases != 1 {
			t.Errorf("%d requests, %d keys and %d releases are remembered; want one that hangs, "+
				"and a release", requests, keys, releases)
		}
		r, err := b.Acquire(t.Context(), claimFor("other", "other"))
		if err != nil || r.State != driver.Held {
			t.Errorf("Acquire of another key: %v, %v", r.State, err)
		}
		time.Sleep(2 * patience)
		if got := strings.Join(d.requests(), ", "); got !=
			"acquire hangs, acquire other, release hangs" {
			t.Errorf("sent: %s", got)
		}
		if requests, keys, releases := b.line.kept(); requests+keys+releases != 0 {
			t.Errorf("%d requests, %d keys and %d releases are remembered when all are back",
				requests, keys, releases)
		}
	})
}

// Requests that are still to be sent are bounded. One that was refused for that is accepted when
// they are back.
func TestLineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := fake(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range maxQueued {
			go b.Release(ctx, claimFor("hangs", fmt.Sprint("owner", i)))
		}
		synctest.Wait()
		other := claimFor("other", "other")
		if _, err := b.Acquire(t.Context(), other); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire beside %d requests: %v; want %v", maxQueued, err,
				driver.ErrUnavailable)
		}
		time.Sleep((maxQueued + 1) * patience)
		if r, err := b.Acquire(t.Context(), other); err != nil || r.State != driver.Held {
			t.Errorf("Acquire when they are back: %v, %v", r.State, err)
		}
	})
}

// A release that waits for a connection when its caller gives it up is not sent if an equal one
// comes behind it.
func TestLineSendsOneOfEqualReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := fake(t)
		d.free = make(chan struct{})
		for _, after := range []time.Duration{time.Second, 2 * time.Second} {
			callFor(t, after, func(ctx context.Context) {
				b.Release(ctx, claimFor("k", "held"))
			})
		}
		time.Sleep(patience - time.Second)
		close(d.free)
		synctest.Wait()
		if got := strings.Join(d.requests(), ", "); got != "release k" {
			t.Errorf("sent: %s; want one release", got)
		}
		if requests, keys, releases := b.line.kept(); requests != 0 || keys+releases != 0 {
			t.Errorf("%d requests, %d keys and %d releases are remembered when all are back",
				requests, keys, releases)
		}
	})
}

// A release finds no connection, and comes back at the moment when its caller gives it up. It was
// not sent, and nothing is remembered of it.
func TestLineForgetsWhoGaveUpTooLate(t *testing.T) {
	var l line
	p := &place{key: "k", owner: "held", run: func() {}}
	if err := l.join(p); err != nil {
		t.Fatal(err)
	}
	l.leave(p)
	err := l.giveUp(p, context.DeadlineExceeded, func() error { return errConnection })
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) {
		t.Errorf("Release that is back: %v; want %v", err, driver.ErrUnavailable)
	}
	if requests, keys, releases := l.kept(); requests+keys+releases != 0 {
		t.Errorf("%d requests, %d keys and %d releases are remembered", requests, keys, releases)
	}
}

// Of two equal releases that were given up, the one that is behind is sent, whichever was given up
// first: what stands between them may be an acquisition of the same claim.
func TestLineSendsTheLastOfEqualReleases(t *testing.T) {
	var l line
	ahead := &place{key: "k", run: func() {}}
	first, last := &place{key: "k", owner: "held"}, &place{key: "k", owner: "held"}
	for _, p := range []*place{ahead, first, last} {
		if err := l.join(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []*place{last, first} {
		l.giveUp(p, context.DeadlineExceeded, nil)
	}
	if ahead.behind != last || l.releases["held"] != last {
		t.Error("the last release is not next")
	}
}

// The outcome of a request is unknown if it was sent before its caller gave it up, and it is still
// to be sent if it has to be sent again.
func TestLineKnowsWhatWasSent(t *testing.T) {
	for _, owner := range []string{"", "released"} {
		var l line
		p := &place{key: "k", owner: owner, run: func() {}}
		if err := l.join(p); err != nil {
			t.Fatal(err)
		}
		sent := l.send(p)
		err := l.giveUp(p, context.DeadlineExceeded, func() error { return errConnection })
		if !sent || !l.send(p) || !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("release of %q: %v; want %v", owner, err, driver.ErrUnknown)
		}
	}
}

// A request that needs no order has an unknown outcome only if it was sent and may change
// something. Its caller waits no longer than its context and the Backend live, even if the client
// library does not come back.
func TestOutcomeOfARequestAside(t *testing.T) {
	for _, effect := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			_, b := fake(t)
			thaw := make(chan struct{})
			defer close(thaw)
			call := func(ctx context.Context) error {
				_, err := aside(ctx, b, effect, func(ctx context.Context) (int, error) {
					err := maySend(ctx)
					<-thaw
					return 0, err
				})
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := call(ctx); errors.Is(err, driver.ErrUnknown) != effect {
				t.Errorf("effect %v, when its context ends: %v", effect, err)
			}
			time.AfterFunc(time.Second, func() { b.Close() })
			err := call(t.Context())
			if errors.Is(err, driver.ErrUnknown) != effect || !driver.Permanent(err) {
				t.Errorf("effect %v, when the backend is closed: %v", effect, err)
			}
		})
	}
}

// A request ends with its Backend, in a line and beside it, and so does the wait of its caller,
// even if the client library does not come back.
func TestRequestsEndWithTheBackend(t *testing.T) {
	type request func(context.Context) (int, error)
	for name, call := range map[string]func(*Backend, request) error{
		"in line": func(b *Backend, r request) error {
			_, err := inLine(context.Background(), b, "k", "", r)
			return err
		},
		"aside": func(b *Backend, r request) error {
			_, err := aside(context.Background(), b, true, r)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, b := fake(t)
				began := time.Now()
				thaw := make(chan struct{})
				time.AfterFunc(time.Second, func() { b.Close() })
				err := call(b, func(ctx context.Context) (int, error) {
					err := maySend(ctx)
					<-ctx.Done()
					if took := time.Since(began); took != time.Second {
						t.Errorf("the request ends after %v; want with the Backend", took)
					}
					<-thaw
					return 0, err
				})
				if took := time.Since(began); took != time.Second ||
					!errors.Is(err, driver.ErrUnknown) || !errors.Is(err, errClosed) {
					t.Errorf("%v after %v; want that the Backend was closed", err, took)
				}
				synctest.Wait()
				close(thaw)
			})
		})
	}
}

// A renewal that is given up before it has a connection is not sent when it gets one.
func TestRenewalThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := fake(t)
		free := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := aside(ctx, b, true, func(ctx context.Context) (int, error) {
			<-free
			err := maySend(ctx)
			if err == nil {
				t.Error("it is sent")
			}
			return 0, err
		})
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) {
			t.Errorf("%v; want %v", err, driver.ErrUnavailable)
		}
		close(free)
		synctest.Wait()
	})
}
