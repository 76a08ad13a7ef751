package promhold_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/promhold"
)

func TestAcquisitionsByKindAndResource(t *testing.T) {
	options := []promhold.Option{promhold.WithResource(promhold.UpTo("/"))}
	bubble(t, options, func(t *testing.T, w *world) {
		l, _ := w.locker()
		other, _ := w.locker()
		first := w.acquire(l, "invoice/1")
		for range 3 {
			w.release(w.acquire(l, "report", holdfast.WithShared()))
		}
		w.release(w.acquire(l, "render", holdfast.WithPermits(2)))
		var waiters sync.WaitGroup
		waiters.Go(func() { w.release(w.acquire(other, "invoice/1")) })
		time.Sleep(4 * time.Second)
		w.release(first)
		waiters.Wait()

		s := w.scrape()
		s.want(t, samples{
			`holdfast_acquisitions_total{kind="exclusive",resource="invoice"}`:       2,
			`holdfast_acquisitions_total{kind="shared",resource="invoice"}`:          0,
			`holdfast_acquisitions_total{kind="shared",resource="report"}`:           3,
			`holdfast_acquisitions_total{kind="permit",resource="render"}`:           1,
			`distributed_lock_wait_seconds_count{resource="invoice"}`:                2,
			`distributed_lock_wait_seconds_sum{resource="invoice"}`:                  4,
			`distributed_lock_wait_seconds_bucket{resource="invoice",le="2.5"}`:      1,
			`distributed_lock_wait_seconds_bucket{resource="invoice",le="5"}`:        2,
			`holdfast_hold_seconds_sum{resource="invoice"}`:                          4,
			`holdfast_hold_seconds_count{resource="report"}`:                         3,
			`holdfast_releases_unconfirmed_total{resource="invoice"}`:                0,
			`holdfast_losses_total{cause="lease",resource="invoice"}`:                0,
			`distributed_lock_failures_total{cause="unavailable",resource="render"}`: 0,
		})
		if s[`holdfast_waiting_answers_total{resource="invoice"}`] < 1 {
			t.Error("nothing says that the backend was asked while the key was held")
		}
	})
}

func TestHandoversWithinAProcess(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		l, _ := w.locker()
		lock := w.acquire(l, "key")
		var waiters sync.WaitGroup
		for range 3 {
			waiters.Go(func() { w.release(w.acquire(l, "key")) })
		}
		synctest.Wait()
		w.release(lock)
		waiters.Wait()
		w.scrape().want(t, samples{
			`holdfast_handovers_total{resource="all"}`:                     3,
			`holdfast_acquisitions_total{kind="exclusive",resource="all"}`: 4,
			`holdfast_hold_seconds_count{resource="all"}`:                  4,
		})
	})
}

func TestFailuresByCause(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		l, faults := w.locker()
		other, _ := w.locker()
		held := w.acquire(other, "taken")

		fails := func(err, want error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Fatalf("got %v, want %v", err, want)
			}
		}
		_, err := l.TryAcquire(t.Context(), "taken")
		fails(err, holdfast.ErrHeld)
		_, err = l.TryAcquireAll(t.Context(), []string{"free", "taken"})
		fails(err, holdfast.ErrHeld)

		timed, cancel := context.WithTimeoutCause(t.Context(), time.Second,
			fmt.Errorf("a cause of its own: %w", holdfast.ErrUnavailable))
		defer cancel()
		_, err = l.Acquire(timed, "taken")
		fails(err, context.DeadlineExceeded)
		ended, end := context.WithCancelCause(t.Context())
		end(&holdfast.HeldError{Key: "another one"})
		_, err = l.Acquire(ended, "taken")
		fails(err, context.Canceled)

		remove := faults.Inject(memhold.Fault{Calls: memhold.Acquires,
			Err: driver.ErrUnavailable})
		_, err = l.TryAcquire(t.Context(), "free")
		fails(err, holdfast.ErrUnavailable)
		remove()
		remove = faults.Inject(memhold.Fault{Calls: memhold.Acquires, CutReply: true})
		_, err = l.TryAcquire(t.Context(), "free")
		fails(err, holdfast.ErrUnknown)
		remove()
		_, err = l.Acquire(t.Context(), "")
		fails(err, holdfast.ErrInvalid)
		w.release(held)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = l.Acquire(t.Context(), "free")
		fails(err, holdfast.ErrClosed)

		w.scrape().want(t, samples{
			`distributed_lock_failures_total{cause="held",resource="all"}`:        2,
			`distributed_lock_failures_total{cause="timeout",resource="all"}`:     1,
			`distributed_lock_failures_total{cause="cancelled",resource="all"}`:   1,
			`distributed_lock_failures_total{cause="unavailable",resource="all"}`: 1,
			`distributed_lock_failures_total{cause="unknown",resource="all"}`:     1,
			`distributed_lock_failures_total{cause="invalid",resource="all"}`:     1,
			`distributed_lock_failures_total{cause="closed",resource="all"}`:      1,
			`distributed_lock_failures_total{cause="other",resource="all"}`:       0,
		})
	})
}

func TestLossesByCause(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		l, faults := w.locker(holdfast.WithTTL(30 * time.Second))

		removed := w.acquire(l, "removed")
		faults.Lose("removed")
		<-removed.Done()

		bounded := w.acquire(l, "bounded", holdfast.WithMaxHold(40*time.Second))
		<-bounded.Done()
		if err := bounded.Release(t.Context()); !errors.Is(err, holdfast.ErrMaxHold) {
			t.Fatal(err)
		}

		silent := w.acquire(l, "silent")
		remove := faults.Inject(memhold.Fault{Calls: memhold.Renewals,
			Err: driver.ErrUnavailable})
		<-silent.Done()
		remove()

		w.acquire(l, "open")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		s := w.scrape()
		s.want(t, samples{
			`holdfast_losses_total{cause="lease",resource="all"}`:    2,
			`holdfast_losses_total{cause="max_hold",resource="all"}`: 1,
			`holdfast_losses_total{cause="closed",resource="all"}`:   1,
			`holdfast_hold_seconds_count{resource="all"}`:            4,
			`holdfast_renewals_total{outcome="gone",resource="all"}`: 1,
		})
		if s[`holdfast_renewals_total{outcome="missed",resource="all"}`] < 2 {
			t.Error("renewals that the backend did not answer were not counted")
		}
	})
}

func TestUnconfirmedRelease(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		l, faults := w.locker()
		lock := w.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Releases, Times: 1, Err: driver.ErrUnavailable})
		if err := lock.Release(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Fatal(err)
		}
		w.scrape().want(t, samples{
			`holdfast_releases_unconfirmed_total{resource="all"}`: 1,
			`holdfast_hold_seconds_count{resource="all"}`:         1,
		})
	})
}

// An Extend or a release whose context ends with the loss of another lock has lost nothing.
func TestContextOfALostLock(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		l, faults := w.locker()
		lock := w.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, ReplyDelay: time.Second})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second/2, func() {
			cancel(&holdfast.LostError{Key: "another", Reason: errors.New("gone")})
		})
		for _, call := range []func(context.Context) error{lock.Extend, lock.Release} {
			if err := call(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		w.scrape().want(t, samples{
			`holdfast_renewals_total{outcome="missed",resource="all"}`: 1,
			`holdfast_renewals_total{outcome="gone",resource="all"}`:   0,
			`holdfast_releases_unconfirmed_total{resource="all"}`:      1,
			`holdfast_hold_seconds_count{resource="all"}`:              1,
		})
	})
}

func TestMarginOfRenewals(t *testing.T) {
	const ratio = "holdfast_renewal_margin_ratio"
	bubble(t, nil, func(t *testing.T, w *world) {
		l, faults := w.locker(holdfast.WithTTL(30 * time.Second))
		lock := w.acquire(l, "key")
		time.Sleep(11 * time.Second)
		// A lease of 30 s counts for 29.698 s, and its renewal comes after 10 s.
		w.scrape().want(t, samples{
			ratio + `_count{resource="all"}`:                                 1,
			ratio + `_sum{resource="all"}`:                                   19.698 / 30,
			`holdfast_renewal_seconds_sum{resource="all"}`:                   0,
			`holdfast_renewals_total{outcome="confirmed",resource="all"}`:    1,
			`holdfast_renewal_margin_ratio_bucket{resource="all",le="0.33"}`: 0,
		})

		// The next one is due after 20 s. No renewal has an answer until 34 s, 5.7 s before the
		// end.
		remove := faults.Inject(memhold.Fault{Calls: memhold.Renewals,
			Err: driver.ErrUnavailable})
		time.Sleep(23 * time.Second)
		remove()
		time.Sleep(2 * time.Second)
		s := w.scrape()
		s.want(t, samples{
			ratio + `_count{resource="all"}`:                                 2,
			`holdfast_renewals_total{outcome="confirmed",resource="all"}`:    2,
			`holdfast_renewal_margin_ratio_bucket{resource="all",le="0.2"}`:  1,
			`holdfast_renewal_margin_ratio_bucket{resource="all",le="0.33"}`: 1,
		})

		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, ReplyDelay: time.Second})
		time.Sleep(11 * time.Second)
		w.scrape().want(t, samples{`holdfast_renewal_seconds_sum{resource="all"}`: 1})
		w.release(lock)
	})
}

// A lease that the backend's queue hands over is shorter than a TTL, and renewed at once. That is
// normal. If its margin counted, each lock that is in demand would raise the alarm.
func TestMarginLeavesOutWhatTheQueueHandsOver(t *testing.T) {
	for name, options := range map[string][]holdfast.AcquireOption{
		"a lock":       nil,
		"shared locks": {holdfast.WithShared()},
		"permits":      {holdfast.WithPermits(1)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, w *world) {
				holder, _ := w.locker(holdfast.WithoutRenewal())
				l, _ := w.locker()
				terms := options
				if name == "shared locks" {
					terms = nil // who holds it meanwhile is a writer
				}
				for range 5 {
					lock := w.acquire(holder, "key", terms...)
					var waiter sync.WaitGroup
					waiter.Go(func() {
						next := w.acquire(l, "key", options...)
						time.Sleep(11 * time.Second) // its lease is renewed within
						w.release(next)
					})
					time.Sleep(8 * time.Second)
					w.release(lock)
					waiter.Wait()
				}
				s := w.scrape()
				if s[`holdfast_renewals_total{outcome="confirmed",resource="all"}`] < 5 {
					t.Error("the leases were not renewed: nothing was shown")
				}
				s.want(t, samples{
					`holdfast_renewal_margin_ratio_bucket{resource="all",le="0.33"}`: 0})
			})
		})
	}
}

// The lease still counts as short when it passes to another goroutine before its first renewal.
func TestQueuedLeaseThatIsHandedOverIsShort(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		holder, _ := w.locker()
		l, _ := w.locker()
		lock := w.acquire(holder, "key")
		var waiters sync.WaitGroup
		waiters.Go(func() { w.release(w.acquire(l, "key")) })
		synctest.Wait()
		waiters.Go(func() {
			next := w.acquire(l, "key")
			time.Sleep(time.Second)
			w.release(next)
		})
		synctest.Wait()
		w.release(lock)
		waiters.Wait()
		w.scrape().want(t, samples{
			`holdfast_handovers_total{resource="all"}`:                    1,
			`holdfast_renewals_total{outcome="confirmed",resource="all"}`: 1,
			`holdfast_renewal_margin_ratio_count{resource="all"}`:         0,
		})
	})
}

func TestSecondRenewalOfAQueuedLeaseCounts(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		holder, _ := w.locker()
		l, _ := w.locker()
		lock := w.acquire(holder, "key")
		var waiter sync.WaitGroup
		waiter.Go(func() {
			next := w.acquire(l, "key")
			time.Sleep(15 * time.Second)
			w.release(next)
		})
		synctest.Wait()
		w.release(lock)
		waiter.Wait()
		s := w.scrape()
		s.want(t, samples{
			`holdfast_renewals_total{outcome="confirmed",resource="all"}`: 2,
			`holdfast_renewal_margin_ratio_count{resource="all"}`:         1,
		})
		if sum := s[`holdfast_renewal_margin_ratio_sum{resource="all"}`]; sum < .6 || sum > .67 {
			t.Errorf("the margin is %v, want a little less than two thirds", sum)
		}
	})
}

func TestMarginIsAShareOfTheTTLGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := promhold.New()
		memory := memhold.New()
		defer memory.Close()
		l, err := holdfast.New(memory, holdfast.WithTTL(3*time.Second),
			holdfast.WithHooks(metrics.Hooks(3*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := l.Acquire(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		gather(t, metrics).want(t, samples{
			`holdfast_renewal_margin_ratio_sum{resource="all"}`: 1.968 / 3})
	})
}

func TestResourcesAreBounded(t *testing.T) {
	identity := func(key string) string { return key }
	options := []promhold.Option{promhold.WithResource(identity), promhold.WithMaxResources(7)}
	bubble(t, options, func(t *testing.T, w *world) {
		l, _ := w.locker()
		for i := range 1000 {
			w.release(w.acquire(l, fmt.Sprintf("invoice/%d", i)))
		}
		s := w.scrape()
		s.want(t, samples{
			`distributed_lock_wait_seconds_count{resource="invoice/6"}`: 1,
			`distributed_lock_wait_seconds_count{resource="other"}`:     993,
		})
		resources := 0
		for series := range s {
			if strings.HasPrefix(series, "distributed_lock_wait_seconds_count") {
				resources++
			}
		}
		if resources != 8 {
			t.Errorf("%d resources, want 7 and other", resources)
		}
	})
}

func TestDefaultBoundOfResources(t *testing.T) {
	metrics := promhold.New(promhold.WithResource(func(key string) string { return key }))
	hooks := metrics.Hooks(0)
	for i := range 2 * promhold.DefaultMaxResources {
		hooks.HandedOver(holdfast.HandedOverEvent{Key: fmt.Sprint(i)})
	}
	gather(t, metrics).want(t, samples{
		`holdfast_handovers_total{resource="other"}`: promhold.DefaultMaxResources,
		`holdfast_handovers_total{resource="99"}`:    1,
	})
}

func TestNilOption(t *testing.T) {
	defer func() {
		if got := recover(); got != "promhold: option 2 is nil: leave it out" {
			t.Errorf("panic: %v", got)
		}
	}()
	promhold.New(promhold.WithMaxResources(1), nil)
}

func TestStrangeResources(t *testing.T) {
	metrics := promhold.New(promhold.WithResource(func(key string) string { return key }),
		promhold.WithMaxResources(10))
	hooks := metrics.Hooks(0)
	for _, key := range []string{"", "a\xffb", "a\xfeb", "a\"b\n", "other",
		strings.Repeat("x", 200)} {
		hooks.HandedOver(holdfast.HandedOverEvent{Key: key})
	}
	gather(t, metrics).want(t, samples{
		`holdfast_handovers_total{resource=""}`:       1,
		`holdfast_handovers_total{resource="a�b"}`:    2,
		`holdfast_handovers_total{resource="a\"b\n"}`: 1,
		`holdfast_handovers_total{resource="other"}`:  2,
	})
}

func TestUpTo(t *testing.T) {
	for key, want := range map[string]string{"invoice/42/lines": "invoice", "report": "report",
		"/x": "", "": ""} {
		if got := promhold.UpTo("/")(key); got != want {
			t.Errorf("%q is of the resource %q, want %q", key, got, want)
		}
	}
}

// As with all hooks, a function of the caller's that panics loses only its own events.
func TestResourceThatPanics(t *testing.T) {
	var panics bool
	resource := func(string) string {
		if panics {
			panic("no resource")
		}
		return "all"
	}
	bubble(t, []promhold.Option{promhold.WithResource(resource)}, func(t *testing.T, w *world) {
		l, _ := w.locker()
		panics = true
		w.release(w.acquire(l, "key"))
		synctest.Wait()
		panics = false
		w.release(w.acquire(l, "key"))
		w.scrape().want(t, samples{`distributed_lock_wait_seconds_count{resource="all"}`: 1})
	})
}

func TestHistogramsAreClassicAndNative(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		l, _ := w.locker()
		w.acquire(l, "key")
		time.Sleep(11 * time.Second)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		w.scrape()
		histograms := 0
		for _, f := range families(t, w.metrics) {
			if h := f.Metric[0].Histogram; h != nil {
				histograms++
				if len(h.Bucket) < 5 {
					t.Errorf("%s has %d classic buckets", f.GetName(), len(h.Bucket))
				}
				if h.Schema == nil || h.GetZeroCount() == 0 && len(h.PositiveSpan) == 0 {
					t.Errorf("%s is no native histogram", f.GetName())
				}
			}
		}
		if histograms != 4 {
			t.Errorf("%d histograms, want 4", histograms)
		}
	})
}

// everything is Metrics with a sample of each kind.
func everything(t *testing.T) *promhold.Metrics {
	t.Helper()
	metrics := promhold.New()
	memory := memhold.New()
	t.Cleanup(func() { memory.Close() })
	l, err := holdfast.New(memory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	metrics.Follow("main", l)
	metrics.FollowNodes("main", threeNodes)
	metrics.Hooks(0).HandedOver(holdfast.HandedOverEvent{})
	return metrics
}

func TestNamesAndHelp(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(everything(t))
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestDocumentationNamesEveryMetric(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	line := regexp.MustCompile(`(?m)^//\t((?:holdfast|distributed)_\w+) `)
	for _, match := range line.FindAllStringSubmatch(string(doc), -1) {
		named[match[1]] = true
	}
	for _, f := range families(t, everything(t)) {
		if !named[f.GetName()] {
			t.Errorf("the documentation does not name %s", f.GetName())
		}
		delete(named, f.GetName())
	}
	for name := range named {
		t.Errorf("the documentation names %s, which does not exist", name)
	}
}

func TestScrapesWhileLocksAreUsed(t *testing.T) {
	metrics := promhold.New(promhold.WithResource(func(key string) string { return key }),
		promhold.WithMaxResources(3))
	memory := memhold.New()
	defer memory.Close()
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			l, err := holdfast.New(memory.Client(), holdfast.WithHooks(metrics.Hooks(0)))
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			defer metrics.Follow("main", l)()
			for i := range 200 {
				err := l.Do(t.Context(), fmt.Sprint(i%5),
					func(context.Context, *holdfast.Lock) error { return nil })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		users.Wait()
	}()
	for {
		gather(t, metrics)
		select {
		case <-done:
			return
		default:
		}
	}
}
