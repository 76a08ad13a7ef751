package look_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// still is a backend with one key.
type still struct{ driver.Entry }

func (s still) List(context.Context, string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) { yield(s.Entry, nil) }
}

func (s still) Inspect(context.Context, string) (driver.Entry, error) { return s.Entry, nil }

// endless is a backend with very many keys. It counts those that were listed.
type endless struct {
	still
	keys   int
	listed atomic.Int64
}

func (e *endless) List(context.Context, string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		for n := 1; n <= e.keys; n++ {
			e.listed.Store(int64(n))
			if !yield(driver.Entry{Key: fmt.Sprintf("%06d", e.keys-n)}, nil) {
				return
			}
		}
	}
}

func (e *endless) Inspect(_ context.Context, key string) (driver.Entry, error) {
	return driver.Entry{Key: key, Holder: driver.Party{Owner: "x", Endless: true}}, nil
}

// TestListKeepsABatch: however many keys there are, only a batch of them is in memory: when a batch
// is shown, no more were listed than were shown. Each batch is in order.
func TestListKeepsABatch(t *testing.T) {
	e := &endless{keys: 10_050}
	v := &look.View{Backend: e, Patience: time.Hour, Batch: 100}
	shown := 0
	err := v.List(t.Context(), "", func(keys []look.Key) error {
		shown += len(keys)
		if len(keys) > 100 || e.listed.Load() > int64(shown+1) {
			t.Fatalf("a batch of %d keys, and %d of %d listed keys were shown", len(keys), shown,
				e.listed.Load())
		}
		if !slices.IsSortedFunc(keys, func(a, b look.Key) int {
			return strings.Compare(a.Text, b.Text)
		}) {
			t.Errorf("not in order: %v", keys)
		}
		return nil
	})
	if err != nil || shown != e.keys {
		t.Errorf("%d keys were shown, %v; want %d", shown, err, e.keys)
	}
}

// large is a backend whose keys have values of another library with megabytes.
type large struct {
	endless
	value string
}

func (l *large) Inspect(_ context.Context, key string) (driver.Entry, error) {
	return driver.Entry{Key: key, Holder: driver.Party{Owner: l.value}}, nil
}

// TestListKeepsLittle: of keys with long values fewer are in memory, as many as fit, and all are
// shown.
func TestListKeepsLittle(t *testing.T) {
	l := &large{endless{keys: 100}, strings.Repeat("x", 5<<20)}
	v := &look.View{Backend: l, Patience: time.Hour}
	shown := 0
	err := v.List(t.Context(), "", func(keys []look.Key) error {
		shown += len(keys)
		if len(keys) > 12 {
			t.Errorf("%d keys with 5 MB at once", len(keys))
		}
		return nil
	})
	if err != nil || shown != l.keys {
		t.Errorf("%d keys were shown, %v; want %d", shown, err, l.keys)
	}
}

// batched is a backend that describes many keys in one call, and one of them not.
type batched struct {
	endless
	calls atomic.Int64
	wrong string // the key that it does not describe
	hangs bool
}

func (b *batched) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	b.calls.Add(1)
	return b.endless.Inspect(ctx, key)
}

func (b *batched) InspectBatch(ctx context.Context, keys []string) []driver.Inspected {
	b.calls.Add(1)
	all := make([]driver.Inspected, len(keys))
	if b.hangs {
		<-ctx.Done()
	}
	for i, key := range keys {
		all[i].Entry, all[i].Err = b.endless.Inspect(ctx, key)
		if key == b.wrong {
			all[i] = driver.Inspected{Err: errWrong}
		} else if b.hangs {
			all[i] = driver.Inspected{Err: ctx.Err()}
		}
	}
	return all
}

var errWrong = errors.New("not a lock")

// TestListAsksInBatches: a backend that describes many keys in one call is asked so. If it does not
// describe one of them, the others are shown, and the error is told.
func TestListAsksInBatches(t *testing.T) {
	list := func(b *batched) (shown int, err error) {
		v := &look.View{Backend: b, Patience: time.Minute, Batch: 1000}
		err = v.List(t.Context(), "", func(keys []look.Key) error {
			for _, k := range keys {
				if len(k.Holders) != 1 || k.Full == b.wrong {
					t.Errorf("shows %+v", k)
				}
			}
			shown += len(keys)
			return nil
		})
		return shown, err
	}
	b := &batched{endless: endless{keys: 2001}}
	if n, err := list(b); n != 2001 || err != nil {
		t.Errorf("%d keys are shown, %v; want 2001", n, err)
	}
	if n := b.calls.Load(); n > 2001/50 {
		t.Errorf("%d keys took %d calls", b.keys, n)
	}
	for _, wrong := range []string{"000000", "000007", "000063"} {
		b := &batched{endless: endless{keys: 64}, wrong: wrong} // as many as in one call
		if n, err := list(b); n != 63 || err != errWrong {
			t.Errorf("%d keys are shown, %v; want 63 and %v", n, err, errWrong)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var silent *look.SilentError
		n, err := list(&batched{endless: endless{keys: 100}, hangs: true})
		if n != 0 || !errors.As(err, &silent) {
			t.Errorf("%d keys are shown, %v; want none, and that there was no answer", n, err)
		}
	})
}

// TestListEndsWithShow: the error of show ends the list.
func TestListEndsWithShow(t *testing.T) {
	e := &endless{keys: 1000}
	full := errors.New("no space")
	v := &look.View{Backend: e, Patience: time.Hour, Batch: 10}
	err := v.List(t.Context(), "", func([]look.Key) error { return full })
	if err != full || e.listed.Load() > 11 {
		t.Errorf("%v after %d keys; want %v after 10", err, e.listed.Load(), full)
	}
}

// deaf is a backend that hangs and does not keep to the end of its context.
type deaf struct {
	still
	first int // how many keys it lists before it hangs
	hang  chan struct{}
	call  func(key string) bool // whether Inspect hangs
}

func (d deaf) List(context.Context, string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		for i := range d.first {
			if !yield(driver.Entry{Key: fmt.Sprint(i)}, nil) {
				return
			}
		}
		<-d.hang
	}
}

func (d deaf) Inspect(_ context.Context, key string) (driver.Entry, error) {
	if d.call != nil && d.call(key) {
		<-d.hang
	}
	return driver.Entry{Key: key, Holder: driver.Party{Owner: "x"}}, nil
}

// TestSilence: a backend that says nothing is given up after the time that it has, in a list and
// for one key. What was listed before is shown.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		const patience = 15 * time.Second
		for what, d := range map[string]deaf{
			"the list": {first: 3, hang: hang},
			"a key of the list": {first: 3, hang: hang,
				call: func(key string) bool { return key == "1" }},
			"all of it": {first: 2, hang: hang, call: func(string) bool { return true }},
		} {
			v := &look.View{Backend: d, Patience: patience, Batch: 3}
			shown, begin := 0, time.Now()
			err := v.List(t.Context(), "", func(keys []look.Key) error {
				shown += len(keys)
				return nil
			})
			var silent *look.SilentError
			if !errors.As(err, &silent) || silent.Patience != patience ||
				shown < 2 && what != "all of it" {
				t.Errorf("%s hangs: %v after %d keys; want a SilentError", what, err, shown)
			}
			if took := time.Since(begin); took > patience+3*time.Second {
				t.Errorf("%s hangs: took %v", what, took)
			}
		}
		v := &look.View{Backend: deaf{hang: hang, call: func(string) bool { return true }},
			Patience: patience}
		begin := time.Now()
		var silent *look.SilentError
		if _, err := v.Inspect(t.Context(), "k"); !errors.As(err, &silent) ||
			time.Since(begin) > patience+time.Second {
			t.Errorf("Inspect: %v after %v; want a SilentError", err, time.Since(begin))
		}
	})
}

// slow answers, and lists its only key after so many answers, a second before patience is over.
type slow struct {
	still
	answers int
}

func (s slow) List(ctx context.Context, _ string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		for range s.answers {
			time.Sleep(14 * time.Second)
			driver.Answered(ctx)
		}
		yield(driver.Entry{Key: "k"}, nil)
		<-ctx.Done() // and says no more
	}
}

var held = driver.Entry{Key: "k", Holder: driver.Party{Owner: "o"}}

// TestAnswersWithoutAKey: while a backend answers, it is not given up, however long it has nothing
// to list.
func TestAnswersWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shown, begin := 0, time.Now()
		v := &look.View{Backend: slow{still{held}, 100}, Patience: 15 * time.Second}
		err := v.List(t.Context(), "", func(keys []look.Key) error {
			shown += len(keys)
			return nil
		})
		var silent *look.SilentError
		if took := time.Since(begin); shown != 1 || !errors.As(err, &silent) ||
			took < 1415*time.Second || took > 1420*time.Second {
			t.Errorf("%d keys and %v after %v; want one, and silence since 1400s", shown, err, took)
		}
	})
}

// TestAskAgain: a connection that breaks is no reason to give up a question; a refusal is.
func TestAskAgain(t *testing.T) {
	broken := &driver.Error{Err: errors.New("i/o timeout")}
	refused := &driver.Error{Permanent: true, Err: errors.New("NOPERM")}
	for _, test := range []struct {
		errs []error
		want error
	}{{[]error{broken, broken, nil}, nil}, {[]error{broken, broken, broken, nil}, broken},
		{[]error{refused, nil}, refused}} {
		v := &look.View{Patience: time.Minute}
		_, err := look.Ask(t.Context(), v, func(context.Context) (_ int, err error) {
			err, test.errs = test.errs[0], test.errs[1:]
			return 0, err
		})
		if err != test.want {
			t.Errorf("%v; want %v", err, test.want)
		}
	}
}

// TestEndOfContext: a caller whose context ends waits a moment for a backend that hangs, and is not
// told that the backend was silent for its whole time.
func TestEndOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		d := deaf{first: 3, hang: hang, call: func(key string) bool { return key == "k" }}
		v := &look.View{Backend: d, Patience: 15 * time.Second}
		for what, f := range map[string]func(context.Context) error{
			"a list": func(ctx context.Context) error {
				return v.List(ctx, "", func([]look.Key) error { return nil })
			},
			"a key": func(ctx context.Context) error {
				_, err := v.Inspect(ctx, "k")
				return err
			},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(3*time.Second, cancel)
			begin := time.Now()
			err := f(ctx)
			var silent *look.SilentError
			if !errors.Is(err, context.Canceled) || errors.As(err, &silent) {
				t.Errorf("%s: %v, want that the context has ended", what, err)
			}
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("%s: took %v", what, took)
			}
		}
	})
}

// TestListShowsWaiters: a list has what List of a backend leaves out, and leaves out what is free
// by now.
func TestListShowsWaiters(t *testing.T) {
	b := memhold.New()
	defer b.Close()
	claim := func(key string, queue bool) driver.Claim {
		return driver.Claim{Key: key, Owner: driver.NewOwner(driver.OwnerSuffix("x")),
			TTL: time.Hour, Queue: queue, Token: driver.Token(time.Now().UnixMicro())}
	}
	for _, key := range []string{"p/b", "p/a", "q/c", "p/a@permit/1", "p/a@permit/0",
		"p/a@permit/gate3", "p/a@permit/gate1000", "p/a@permit/scout"} {
		if r, err := b.Acquire(t.Context(), claim(key, false)); err != nil ||
			r.State != driver.Held {
			t.Fatal(r.State, err)
		}
	}
	for range 2 {
		if r, err := b.Acquire(t.Context(), claim("p/a", true)); err != nil ||
			r.State != driver.Busy {
			t.Fatal(r.State, err)
		}
	}
	v := &look.View{Backend: b, Prefix: "p/", Patience: time.Hour}
	var got []string
	err := v.List(t.Context(), "", func(keys []look.Key) error {
		for _, k := range keys {
			got = append(got, fmt.Sprintf("%v=%d", k.Name, len(k.Waiters)))
			if k.Holders[0].Since.IsZero() || k.Holders[0].Token == 0 {
				t.Errorf("%v: no token or time, which the backend knows", k.Name)
			}
		}
		return nil
	})
	want := []string{"a=2", "a, gate of 3=0", "a, gate of 1000=0", "a, scouts=0",
		"a, permit 0=0", "a, permit 1=0", "b=0"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("listed %q, %v; want %q", got, err, want)
	}
}
