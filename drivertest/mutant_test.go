package drivertest_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memhold"
)

const presence = time.Second

// mutant is a backend that breaks rules. Functions that are nil leave memhold as it is.
type mutant struct {
	name string
	red  []string // the rules that must find it, at least

	acquire func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result, error)
	renew   func(b *memhold.Backend, ctx context.Context,
		claims []driver.Claim) ([]driver.Result, error)
	release func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result, error)
	close   func(b *memhold.Backend) error
	notify  func(b *memhold.Backend, f func(driver.Notice)) func()
	inspect func(b *memhold.Backend, ctx context.Context, key string) (driver.Entry, error)
	batch   func(all []driver.Inspected) []driver.Inspected
	list    func(b *memhold.Backend, ctx context.Context,
		prefix string) iter.Seq2[driver.Entry, error]
	guard    func(b *memhold.Backend, guard time.Duration)
	identity func(b *memhold.Backend, ctx context.Context) (string, error)
	join     func(b *memhold.Backend, set driver.Set)
	move     func(b *memhold.Backend, ctx context.Context, from, to driver.Set) (driver.Set, error)

	options []memhold.Option
	harness func(*drivertest.Harness)
	store   func(*drivertest.Store, *memhold.Backend)
}

// backend is memhold with a mutation.
type backend struct {
	*memhold.Backend
	m *mutant
}

func (b *backend) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if b.m.acquire != nil {
		return b.m.acquire(b.Backend, ctx, c)
	}
	return b.Backend.Acquire(ctx, c)
}

func (b *backend) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	if b.m.renew != nil {
		return b.m.renew(b.Backend, ctx, claims)
	}
	return b.Backend.Renew(ctx, claims)
}

func (b *backend) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if b.m.release != nil {
		return b.m.release(b.Backend, ctx, c)
	}
	return b.Backend.Release(ctx, c)
}

func (b *backend) Close() error {
	if b.m.close != nil {
		return b.m.close(b.Backend)
	}
	return b.Backend.Close()
}

func (b *backend) Notify(f func(driver.Notice)) func() {
	if b.m.notify != nil {
		return b.m.notify(b.Backend, f)
	}
	return b.Backend.Notify(f)
}

func (b *backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	if b.m.inspect != nil {
		return b.m.inspect(b.Backend, ctx, key)
	}
	return b.Backend.Inspect(ctx, key)
}

func (b *backend) InspectBatch(ctx context.Context, keys []string) []driver.Inspected {
	all := make([]driver.Inspected, len(keys))
	for i, key := range keys {
		all[i].Entry, all[i].Err = b.Inspect(ctx, key)
	}
	if b.m.batch != nil {
		return b.m.batch(all)
	}
	return all
}

func (b *backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	if b.m.list != nil {
		return b.m.list(b.Backend, ctx, prefix)
	}
	return b.Backend.List(ctx, prefix)
}

func (b *backend) Guard(guard time.Duration) {
	if b.m.guard != nil {
		b.m.guard(b.Backend, guard)
		return
	}
	b.Backend.Guard(guard)
}

func (b *backend) Join(set driver.Set) {
	if b.m.join != nil {
		b.m.join(b.Backend, set)
		return
	}
	b.Backend.Join(set)
}

func (b *backend) Move(ctx context.Context, from, to driver.Set) (driver.Set, error) {
	if b.m.move != nil {
		return b.m.move(b.Backend, ctx, from, to)
	}
	return b.Backend.Move(ctx, from, to)
}

func (b *backend) Identity(ctx context.Context) (string, error) {
	if b.m.identity != nil {
		return b.m.identity(b.Backend, ctx)
	}
	return b.Backend.Identity(ctx)
}

// inspected is the backend with a Checker.
type inspected struct {
	*backend
	findings []driver.Finding
}

func (b inspected) Check(ctx context.Context) ([]driver.Finding, error) {
	_, err := b.Identity(ctx) // to look at the server, as a real check would
	return b.findings, err
}

func ctxError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &driver.Error{Err: err}
	}
	return nil
}

// harnessOf returns a harness with every hook for the mutant.
func harnessOf(m *mutant) drivertest.Harness {
	h := drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			first := memhold.New(append([]memhold.Option{memhold.WithPresence(presence)},
				m.options...)...)
			t.Cleanup(func() { first.Close() })
			unwrap := func(b driver.Backend) *memhold.Backend {
				return b.(interface{ raw() *memhold.Backend }).raw()
			}
			store := drivertest.Store{
				Open: func(testing.TB) driver.Backend { return &backend{first.Client(), m} },
				Lose: func(_ testing.TB, key string) { first.Faults().Lose(key) },
				CutReply: func(_ testing.TB, client driver.Backend) {
					unwrap(client).Faults().Inject(
						memhold.Fault{Calls: memhold.Acquires | memhold.Renewals | memhold.Releases,
							Times: 1, CutReply: true})
				},
				Freeze: func(_ testing.TB, client driver.Backend) (thaw func()) {
					faults := unwrap(client).Faults()
					faults.Freeze()
					return faults.Thaw
				},
				Forget: func(testing.TB) { first.Faults().Forget() },
				KillHolder: func(t testing.TB, key string) {
					b := &backend{first.Client(), m}
					c := driver.Claim{Key: key, Owner: driver.NewOwner("dead"),
						TTL: drivertest.DefaultShortTTL}
					if r, err := b.Acquire(context.Background(), c); err != nil ||
						r.State != driver.Held {
						t.Errorf("the holder to be killed is %v, %v", r.State, err)
					}
					b.Backend.Close()
				},
			}
			if m.store != nil {
				m.store(&store, first)
			}
			return store
		},
		Capabilities: drivertest.Capabilities{
			Notify: true, Inspect: true, Guard: true, Identify: true, Member: true, Share: true,
			Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
			CanLose: true, CanCutReply: true, CanFreeze: true, CanForget: true, CanKillHolder: true,
		},
		Bubble: true,
	}
	if m.harness != nil {
		m.harness(&h)
	}
	return h
}

func (b *backend) raw() *memhold.Backend { return b.Backend }

// TestExample runs the suite as the example shows it.
func TestExample(test *testing.T) {
	t = test
	ExampleRun()
}

// TestSoundBackendPasses is the control: the same machinery with nothing broken.
func TestSoundBackendPasses(t *testing.T) {
	drivertest.Run(t, harnessOf(&mutant{}))
	t.Run("with a Checker", func(t *testing.T) {
		drivertest.Run(t, harnessOf(&mutant{
			harness: func(h *drivertest.Harness) { h.Capabilities.Check = true },
			store: func(s *drivertest.Store, first *memhold.Backend) {
				s.Open = func(testing.TB) driver.Backend {
					return inspected{&backend{first.Client(), &mutant{}}, []driver.Finding{
						{Severity: driver.Failure, Code: "a", Summary: "A."},
						{Severity: driver.Note, Code: "b", Summary: "B."},
					}}
				}
			},
		}))
	})
}

// TestMutantsAreFound checks that the rules can fail: each of these backends breaks the contract,
// and each of the named rules must say so.
func TestMutantsAreFound(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			for _, rule := range m.red {
				t.Run(rule, func(t *testing.T) {
					failed, log := drivertest.Broken(t, harnessOf(m), rule)
					if !failed {
						t.Errorf("rule %s does not find the mutant %q", rule, m.name)
					}
					t.Logf("found by: %s", log)
				})
			}
		})
	}
}

// TestEveryRuleHasAMutant checks that every rule has been seen to fail.
func TestEveryRuleHasAMutant(t *testing.T) {
	var shown []string
	for _, m := range mutants() {
		shown = append(shown, m.red...)
	}
	for _, name := range drivertest.RuleNames() {
		if !slices.Contains(shown, name) {
			t.Errorf("no mutant shows that rule %s can fail", name)
		}
	}
}

// TestRecorderFailsForItself checks that a mutant fails only its recorder, not the test around it,
// and that a sound backend fails neither.
func TestRecorderFailsForItself(t *testing.T) {
	if failed, log := drivertest.Broken(t, harnessOf(&mutant{}),
		"Release/R7_ComparesOwner"); failed {
		t.Errorf("a sound backend is found to be broken: %s", log)
	}
	unable := &mutant{acquire: func(*memhold.Backend, context.Context, driver.Claim) (driver.Result,
		error) {
		return driver.Result{}, errors.New("unable")
	}}
	if failed, _ := drivertest.Broken(t, harnessOf(unable), "Release/R7_ComparesOwner"); !failed ||
		t.Failed() {
		t.Errorf("failed = %v for a backend that is broken, and %v for the test", failed,
			t.Failed())
	}
}
