// Package fencetest checks that a guard keeps the rule of package fence.
//
// A guard's own tests call [Run] with a [Harness], which says how to write through the guard and
// how to look at what was written. Each rule is a subtest on an empty store.
//
//	func TestConformance(t *testing.T) {
//		fencetest.Run(t, fencetest.Harness{NewStore: func(t testing.TB) fencetest.Store {
//			store := openStore(t) // ended by t.Cleanup
//			return fencetest.Store{
//				Write:   store.write,
//				Read:    store.read,
//				Waiting: store.hasWaitingWrites,
//			}
//		}})
//	}
//
// [Catches] shows that the suite can fail: it runs rules on a guard that was broken on purpose, and
// wants them to fail.
package fencetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/faketb"
)

// DefaultPatience is the default of Harness.Patience.
const DefaultPatience = 30 * time.Second

// Harness is what [Run] needs to know about a guard.
type Harness struct {
	_ struct{} // keyed literals only: fields will be added

	// NewStore returns an empty store, for one rule. What it starts ends by t.Cleanup. Stores are
	// used one after the other, so it may empty and return the same store each time. Required.
	NewStore func(t testing.TB) Store

	// AnyKey says that the guard finds its resource by the key of something that is there, not by a
	// name of its own. The rules for the names of resources are then left out.
	AnyKey bool

	// Patience is how long the suite waits for something that must happen. A guard that keeps the
	// rules never uses it up. Default [DefaultPatience].
	Patience time.Duration

	// Bubble runs each rule in a testing/synctest bubble of its own. Everything that NewStore makes
	// then belongs to the bubble.
	Bubble bool
}

// Store is what a guard protects.
type Store struct {
	_ struct{} // keyed literals only: fields will be added

	// Write sets the value of the resource through the guard, as the holder of token. If pause is
	// not nil, Write calls it once: as late as it can before the write is final and, if the guard
	// is asked in a step of its own, after that step. If the guard refuses, Write need not call
	// pause. Many goroutines call Write at once. Required.
	Write func(ctx context.Context, resource string, token fence.Token, value string,
		pause func()) error

	// Read returns the value of the resource, "" if it has none, past the guard. Required.
	Read func(ctx context.Context, resource string) (string, error)

	// Create makes a resource that nobody has written yet. If Create is nil, the first write makes
	// the resource. Otherwise a write to a resource that was not created has to fail with
	// [fence.ErrNotFound].
	Create func(ctx context.Context, resource string) error

	// Waiting reports whether a write waits inside the store until another one is final. Nil means
	// that no write ever waits: a write that cannot go on fails with an error of the store. In a
	// bubble Waiting is not called.
	Waiting func(ctx context.Context) (bool, error)

	// Crash kills the store, and returns when the store answers again with what it had committed.
	// Nil means that the store cannot be killed.
	Crash func(t testing.TB)
}

// Run checks every rule that applies to the guard, each as a subtest. Rules that do not apply are
// listed in the log.
func Run(t *testing.T, harness Harness) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			harness.inTime(t, func(t *testing.T) { harness.check(t, r) })
		})
	}
}

// Catches runs the named rules on a guard that is broken on purpose, and fails t for each rule that
// does not notice.
func Catches(t *testing.T, harness Harness, names ...string) {
	t.Helper()
	for _, name := range names {
		i := index(name)
		if i < 0 {
			t.Errorf("fencetest: there is no rule %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			harness.inTime(t, func(t *testing.T) {
				rec := &faketb.Recorder{TB: t}
				rec.Run(func() { harness.check(rec, rules[i]) })
				if !rec.Failed() {
					t.Errorf("rule %s does not notice that the guard is broken", name)
				}
				t.Logf("found by: %s", rec.Text())
			})
		})
	}
}

// Rules returns the names of all rules.
func Rules() []string {
	var names []string
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}

// inTime runs f in the time that the harness asks for.
func (h Harness) inTime(t *testing.T, f func(*testing.T)) {
	if h.Bubble {
		synctest.Test(t, f)
	} else {
		f(t)
	}
}

// check runs one rule on an empty store.
func (h Harness) check(t testing.TB, r rule) {
	t.Helper()
	if h.NewStore == nil {
		t.Fatal("fencetest: Harness.NewStore is required")
	}
	if h.Patience == 0 {
		h.Patience = DefaultPatience
	}
	s := &suite{TB: t, Harness: h, Store: h.NewStore(t)}
	if s.Write == nil || s.Read == nil {
		t.Fatal("fencetest: Store.Write and Store.Read are required")
	}
	if reason := r.absent(s); reason != "" {
		t.Log("does not apply: " + reason)
		return
	}
	r.check(s)
}
