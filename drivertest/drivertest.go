// Package drivertest checks that a backend keeps the contract of package driver.
//
// A backend's own tests call [Run] with a [Harness], which says how to get at a store, what the
// backend can do, and how to make the store misbehave. Each rule of the contract is a subtest on an
// empty store.
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{
//			NewStore: func(t testing.TB) drivertest.Store {
//				server := startServer(t) // ended by t.Cleanup
//				return drivertest.Store{
//					Open: func(t testing.TB) driver.Backend { return open(t, server.URL) },
//					Lose: func(t testing.TB, key string) { server.Delete(key) },
//					KillHolder: func(t testing.TB, key string) {
//						// A process of its own that acquires key, says so, and is killed with SIGKILL.
//					},
//				}
//			},
//			Capabilities: drivertest.Capabilities{
//				Queue: true, Notify: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
//				CanLose: true, CanKillHolder: true,
//			},
//		})
//	}
//
// # Nothing is left out silently
//
// The harness states every capability. A capability that is stated but absent fails the test, and
// so does one that is there but not stated. [Run] logs the rules that it leaves out because a
// capability is absent.
//
// # Time
//
// Against a server the suite runs in real time. If something must happen, it waits for a state; if
// nothing must happen, it waits for a time to pass. [Harness.TTL] must be long beside any pause of
// the machine. [Harness.ShortTTL] and the presence of waiters must be short enough to wait for. If
// the machine pauses for longer than the short lease, the suite does not say that the backend
// breaks a rule. A backend in memory sets [Harness.Bubble], and every rule runs in the fake time of
// a testing/synctest bubble.
package drivertest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Defaults of a Harness.
const (
	DefaultTTL      = time.Minute
	DefaultShortTTL = 500 * time.Millisecond
	DefaultPatience = 30 * time.Second
)

// Harness is what [Run] needs to know about a backend.
type Harness struct {
	_ struct{} // keyed literals only: fields will be added

	// NewStore returns an empty store, for one rule. What it starts ends by t.Cleanup. Stores are
	// used one after the other, so it may empty and return the same server each time. Required.
	NewStore func(t testing.TB) Store

	// Capabilities says what the backend and the store can do.
	Capabilities Capabilities

	// TTL is for leases that must not end while a rule runs. Default [DefaultTTL].
	TTL time.Duration

	// ShortTTL is for leases whose end the suite waits for, and for waiters that die. If the
	// requests that must come before that end took longer, the suite repeats them with twice the
	// lease. Default [DefaultShortTTL].
	ShortTTL time.Duration

	// Patience is how long the suite waits for something that must happen. A backend that keeps the
	// rules never uses it up. Default [DefaultPatience].
	Patience time.Duration

	// Elapse returns when d has passed for the store and for this process. The suite calls it to
	// wait for a time to pass, and between two looks at a state that must come. Default time.Sleep.
	Elapse func(t testing.TB, d time.Duration)

	// Light has the rules under Load make a tenth or a quarter of their requests. It is for a store
	// that needs milliseconds of processor time for a request. The flag -test.short does the same.
	Light bool

	// Bubble runs each rule in a testing/synctest bubble of its own. Everything that NewStore and
	// Open make then belongs to the bubble, so it must not use a network or processes.
	Bubble bool
}

// Capabilities says what a backend can do, and what its store can be made to do.
type Capabilities struct {
	_ struct{} // keyed literals only: fields will be added

	// Of the backend, found by type assertion.
	Notify   bool // it is a driver.Notifier
	Inspect  bool // it is a driver.Inspector
	Check    bool // it is a driver.Checker
	Guard    bool // it is a driver.Guarder
	Identify bool // it is a driver.Identifier
	Member   bool // it is a driver.Member
	Share    bool // it is a driver.Sharer, and says that it shares

	// Of the backend, found by trying.
	Queue     bool // a busy claim with Queue set is queued, and granted in its turn
	Holder    bool // Busy says who holds the key
	ExpiresIn bool // Busy says how long the lease runs
	Expiry    bool // a lease ends by itself while its client lives
	Outlives  bool // a lease runs on when its client is closed

	// Of the store, which hooks it has.
	CanLose       bool // Store.Lose
	CanCutReply   bool // Store.CutReply
	CanFreeze     bool // Store.Freeze
	CanForget     bool // Store.Forget
	CanKillHolder bool // Store.KillHolder
}

// Store is what a backend connects to, with the hooks that make it misbehave. A missing hook is
// nil, and Capabilities says so.
type Store struct {
	_ struct{} // keyed literals only: fields will be added

	// Open returns a new client of the store, as another process would have one. The suite closes
	// it. Required.
	Open func(t testing.TB) driver.Backend

	// Lose removes key from its holder at once, as if the store had evicted it. Nobody is told, and
	// waiters stay. Somebody holds the key when it is called.
	Lose func(t testing.TB, key string)

	// CutReply has the next call on the client take effect and its reply get lost.
	CutReply func(t testing.TB, client driver.Backend)

	// Freeze has the calls on the client hang from now on until thaw is called, for example by
	// SIGSTOP to the server. Then the calls that were sent take effect. thaw may be called twice.
	Freeze func(t testing.TB, client driver.Backend) (thaw func())

	// Forget restarts the store without its data and returns when it answers again.
	Forget func(t testing.TB)

	// KillHolder starts another process that acquires key for the harness's ShortTTL. It kills the
	// process with SIGKILL while that holds the key, and returns when it is dead.
	KillHolder func(t testing.TB, key string)
}

// Run checks every rule of the contract that applies to the backend, each as a subtest.
func Run(t *testing.T, harness Harness) {
	t.Helper()
	harness.setDefaults()
	if harness.NewStore == nil {
		t.Fatal("drivertest: Harness.NewStore is required")
	}
	have := harness.Capabilities.features()
	var absent []string
	for _, r := range rules() {
		if !r.applies(have) {
			absent = append(absent, r.name)
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			harness.inTime(t, func(t *testing.T) { harness.check(t, r) })
		})
	}
	if len(absent) > 0 {
		t.Logf("not run, as the harness states that the capability is absent: %s",
			strings.Join(absent, ", "))
	}
}

func (h *Harness) setDefaults() {
	if h.TTL == 0 {
		h.TTL = DefaultTTL
	}
	if h.ShortTTL == 0 {
		h.ShortTTL = DefaultShortTTL
	}
	if h.Patience == 0 {
		h.Patience = DefaultPatience
	}
	if h.Elapse == nil {
		h.Elapse = func(_ testing.TB, d time.Duration) { time.Sleep(d) }
	}
}

// inTime runs f in fake or real time, as the harness says.
func (h *Harness) inTime(t *testing.T, f func(*testing.T)) {
	if h.Bubble {
		synctest.Test(t, f)
	} else {
		f(t)
	}
}

// check runs one rule on an empty store.
func (h *Harness) check(t testing.TB, r rule) {
	t.Helper()
	store := h.NewStore(t)
	if store.Open == nil {
		t.Fatal("drivertest: Store.Open is required")
	}
	r.check(&suite{TB: t, Harness: h, store: store})
}
