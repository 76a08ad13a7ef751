package otelhold_test

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

	"go.opentelemetry.io/otel"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/otelhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// events are what may happen, with the metrics afterwards.
var events = []struct {
	name string
	do   func(t *testing.T, w *world)
	want samples
}{
	{"locks of each kind", grantsOfEachKind, samples{
		"holdfast.acquisitions{kind=exclusive,resource=all}": 1,
		"holdfast.acquisitions{kind=shared,resource=all}":    2,
		"holdfast.acquisitions{kind=permit,resource=all}":    3,
		"distributed_lock.wait.count{resource=all}":          6,
		"distributed_lock.wait.sum{resource=all}":            0,
		"holdfast.hold.count{resource=all}":                  6,
		"holdfast.hold.sum{resource=all}":                    6,
		"holdfast.losses{cause=lease,resource=all}":          0,
		"holdfast.handovers{resource=all}":                   0,
	}},
	{"a wait for another process", waitForAnother, samples{
		"holdfast.acquisitions{kind=exclusive,resource=all}": 2,
		"distributed_lock.wait.count{resource=all}":          2,
		"distributed_lock.wait.sum{resource=all}":            0.5,
		"holdfast.waiting_answers{resource=all}":             1,
		"distributed_lock.failures{cause=held,resource=all}": 0,
	}},
	{"handovers", handsOver, samples{
		"holdfast.handovers{resource=all}":                   3,
		"holdfast.acquisitions{kind=exclusive,resource=all}": 4,
		"holdfast.hold.count{resource=all}":                  4,
	}},
	{"failures", failsInAllWays, samples{
		"distributed_lock.failures{cause=held,resource=all}":        2,
		"distributed_lock.failures{cause=timeout,resource=all}":     1,
		"distributed_lock.failures{cause=cancelled,resource=all}":   1,
		"distributed_lock.failures{cause=unavailable,resource=all}": 1,
		"distributed_lock.failures{cause=unknown,resource=all}":     1,
		"distributed_lock.failures{cause=closed,resource=all}":      1,
		"distributed_lock.failures{cause=invalid,resource=all}":     2,
		"distributed_lock.failures{cause=other,resource=all}":       0,
	}},
	{"losses", losesInAllWays, samples{
		"holdfast.losses{cause=lease,resource=all}":    2,
		"holdfast.losses{cause=max_hold,resource=all}": 1,
		"holdfast.losses{cause=closed,resource=all}":   1,
		"holdfast.hold.count{resource=all}":            4,
		"holdfast.renewals{outcome=gone,resource=all}": 1,
		"holdfast.renewals{outcome=late,resource=all}": 0,
	}},
	{"a release without an answer", leavesRelease, samples{
		"holdfast.releases_unconfirmed{resource=all}": 1,
		"holdfast.hold.count{resource=all}":           1,
	}},
	// A lease of 30 s counts for 29.698 s, and its renewal comes after 10 s.
	{"a renewal", renews, samples{
		"holdfast.renewals{outcome=confirmed,resource=all}":   1,
		"holdfast.renewals{outcome=missed,resource=all}":      0,
		"holdfast.renewal.sum{resource=all}":                  1,
		"holdfast.renewal_margin_ratio.count{resource=all}":   1,
		"holdfast.renewal_margin_ratio.sum{resource=all}":     18.698 / 30,
		"distributed_lock.failures{cause=held,resource=all}":  0,
		"holdfast.acquisitions{kind=exclusive,resource=all}":  1,
		"holdfast.acquisitions{kind=permit,resource=all}":     0,
		"holdfast.releases_unconfirmed{resource=all}":         0,
		"holdfast.waiting_answers{resource=all}":              0,
		"holdfast.losses{cause=closed,resource=all}":          0,
		"distributed_lock.failures{cause=other,resource=all}": 0,
	}},
	{"the first renewal of a lease that was queued for", renewsQueued, samples{
		"holdfast.renewals{outcome=confirmed,resource=all}": 2,
		"holdfast.renewal_margin_ratio.count{resource=all}": 1,
	}},
	{"what is held, and who waits", holdsAndWaits, samples{
		"holdfast.held{locker=orders}":    3,
		"holdfast.held{locker=alone}":     1,
		"holdfast.waiting{locker=orders}": 5,
		"holdfast.waiting{locker=alone}":  0,
	}},
	{"nodes", followsNodes, samples{
		"holdfast.nodes_needed{quorum=main}":                              2,
		"holdfast.node_state{node=h1:6379,quorum=main,state=up}":          1,
		"holdfast.node_state{node=h1:6379,quorum=main,state=down}":        0,
		"holdfast.node_state{node=h2:6379,quorum=main,state=down}":        1,
		"holdfast.node_state{node=h2:6379,quorum=main,state=duplicate}":   0,
		"holdfast.node_calls{node=h2:6379,quorum=main}":                   3,
		"holdfast.node_releases_owed{node=h2:6379,quorum=main}":           4,
		"holdfast.node_releases_owed{node=h1:6379,quorum=main}":           0,
		"holdfast.node_state{node=h2:6379,quorum=main,state=refusing}":    0,
		"holdfast.node_state{node=h1:6379,quorum=main,state=unasked}":     0,
		"holdfast.node_state{node=h1:6379,quorum=main,state=quarantined}": 0,
	}},
}

func TestEveryMetricChangesAsDocumented(t *testing.T) {
	documented := documentedMetrics(t)
	shown := make(map[string]string)
	for _, e := range events {
		t.Run(e.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				e.do(t, w)
				w.samples().want(t, e.want)
				for _, m := range w.collect() {
					shown[m.Name] = kindOf(m)
				}
			})
		})
	}
	for name, kind := range shown {
		if documented[name] != kind {
			t.Errorf("%s is a %s, and the documentation says %q", name, kind, documented[name])
		}
	}
	for name := range documented {
		if shown[name] == "" {
			t.Errorf("the documentation names %s, which does not exist", name)
		}
		changes := false
		for _, e := range events {
			for series, value := range e.want {
				series = strings.NewReplacer(".count{", "{", ".sum{", "{").Replace(series)
				changes = changes || value > 0 && strings.HasPrefix(series, name+"{")
			}
		}
		if !changes {
			t.Errorf("nothing was done that changes %s", name)
		}
	}
}

// documentedMetrics are the names that the package documentation lists, and what they are.
func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]string)
	line := regexp.MustCompile(`(?m)^//\t([a-z_.]+) +(histogram|counter|sum|gauge) `)
	for _, match := range line.FindAllStringSubmatch(string(doc), -1) {
		named[match[1]] = match[2]
	}
	return named
}

// kindOf tells what a metric is, in the words of the documentation.
func kindOf(m metricdata.Metrics) string {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		if data.IsMonotonic {
			return "counter"
		}
		return "sum"
	case metricdata.Gauge[int64]:
		return "gauge"
	case metricdata.Histogram[float64]:
		return "histogram"
	default:
		return fmt.Sprintf("%T", data)
	}
}

func grantsOfEachKind(t *testing.T, w *world) {
	l, _ := w.locker()
	for i, options := range [][]holdfast.AcquireOption{nil, {holdfast.WithShared()},
		{holdfast.WithPermits(2)}} {
		for range i + 1 {
			lock := w.acquire(t.Context(), l, fmt.Sprint("key", i), options...)
			time.Sleep(time.Second)
			w.release(lock)
		}
	}
}

func waitForAnother(t *testing.T, w *world) {
	l, _ := w.locker()
	other, _ := w.locker()
	lock := w.acquire(t.Context(), other, "key")
	time.AfterFunc(500*time.Millisecond, func() { w.release(lock) })
	w.release(w.acquire(t.Context(), l, "key"))
}

func handsOver(t *testing.T, w *world) {
	l, _ := w.locker()
	lock := w.acquire(t.Context(), l, "key")
	var waiters sync.WaitGroup
	for range 3 {
		waiters.Go(func() { w.release(w.acquire(t.Context(), l, "key")) })
	}
	synctest.Wait()
	w.release(lock)
	waiters.Wait()
}

func failsInAllWays(t *testing.T, w *world) {
	l, faults := w.locker()
	other, _ := w.locker()
	w.acquire(t.Context(), other, "taken")
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

	remove := faults.Inject(memhold.Fault{Calls: memhold.Acquires, Err: driver.ErrUnavailable})
	_, err = l.TryAcquire(t.Context(), "free")
	fails(err, holdfast.ErrUnavailable)
	remove()
	remove = faults.Inject(memhold.Fault{Calls: memhold.Acquires, CutReply: true})
	_, err = l.TryAcquire(t.Context(), "free")
	fails(err, holdfast.ErrUnknown)
	remove()
	_, err = l.Acquire(t.Context(), "")
	fails(err, holdfast.ErrInvalid)
	var none context.Context
	_, err = l.Acquire(none, "free")
	fails(err, holdfast.ErrInvalid)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = l.Acquire(t.Context(), "free")
	fails(err, holdfast.ErrClosed)
}

func losesInAllWays(t *testing.T, w *world) {
	l, faults := w.locker()
	removed := w.acquire(t.Context(), l, "removed")
	faults.Lose("removed")
	<-removed.Done()

	bounded := w.acquire(t.Context(), l, "bounded", holdfast.WithMaxHold(40*time.Second))
	<-bounded.Done()
	if err := bounded.Release(t.Context()); !errors.Is(err, holdfast.ErrMaxHold) {
		t.Fatal(err)
	}

	silent := w.acquire(t.Context(), l, "silent")
	remove := faults.Inject(memhold.Fault{Calls: memhold.Renewals, Err: driver.ErrUnavailable})
	<-silent.Done()
	synctest.Wait() // or the next loss may be told first
	remove()

	w.acquire(t.Context(), l, "open")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := w.samples()
	if s["holdfast.renewals{outcome=missed,resource=all}"] < 2 {
		t.Error("renewals that the backend did not answer were not counted")
	}
	margins := s["holdfast.renewal_margin_ratio.count{resource=all}"]
	if confirmed := s["holdfast.renewals{outcome=confirmed,resource=all}"]; margins != confirmed ||
		confirmed == 0 {
		t.Errorf("%v margins of %v renewals that were confirmed", margins, confirmed)
	}
}

func leavesRelease(t *testing.T, w *world) {
	l, faults := w.locker()
	lock := w.acquire(t.Context(), l, "key")
	faults.Inject(memhold.Fault{Calls: memhold.Releases, Times: 1, Err: driver.ErrUnavailable})
	if err := lock.Release(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Fatal(err)
	}
}

func renews(t *testing.T, w *world) {
	l, faults := w.locker()
	lock := w.acquire(t.Context(), l, "key")
	faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, ReplyDelay: time.Second})
	time.Sleep(12 * time.Second)
	w.release(lock)
}

func renewsQueued(t *testing.T, w *world) {
	holder, _ := w.locker()
	l, _ := w.locker()
	lock := w.acquire(t.Context(), holder, "key")
	var waiter sync.WaitGroup
	waiter.Go(func() {
		next := w.acquire(t.Context(), l, "key")
		time.Sleep(15 * time.Second)
		w.release(next)
	})
	synctest.Wait()
	w.release(lock)
	waiter.Wait()
}

func holdsAndWaits(t *testing.T, w *world) {
	l, _ := w.locker()
	twin, _ := w.locker()
	alone, _ := w.locker()
	w.telemetry.Follow("orders", l)
	w.telemetry.Follow("orders", twin)
	w.telemetry.Follow("alone", alone)
	w.acquire(t.Context(), l, "a")
	w.acquire(t.Context(), l, "b")
	w.acquire(t.Context(), twin, "c")
	w.acquire(t.Context(), alone, "d", holdfast.WithPermits(2))
	for range 5 {
		go twin.Acquire(t.Context(), "a")
	}
}

func followsNodes(_ *testing.T, w *world) {
	w.telemetry.FollowNodes("main", func() quorum.Status { return quorum.Status{Need: 9} })
	w.telemetry.FollowNodes("main", func() quorum.Status {
		return quorum.Status{Need: 2, Nodes: []quorum.NodeStatus{
			{Name: "h1:6379", State: quorum.Up},
			{Name: "h2:6379", State: quorum.Down, Pending: 3, Owed: 4},
			{Name: "h2:6379", State: quorum.Up, Pending: 5, Owed: 5},
		}}
	})
}

// What is not followed any more is not observed. After Close nothing is.
func TestWhatIsFollowedEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		stop := w.telemetry.Follow("gone", l)
		w.telemetry.Follow("kept", l)
		stopNodes := w.telemetry.FollowNodes("gone",
			func() quorum.Status { return quorum.Status{} })
		stop()
		stop()
		stopNodes()
		s := w.samples()
		s.want(t, samples{"holdfast.held{locker=kept}": 0})
		for series := range s {
			if strings.Contains(series, "gone") {
				t.Errorf("%s is there, of what is not followed any more", series)
			}
		}
		for range 2 {
			if err := w.telemetry.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if s := w.samples(); len(s) > 0 {
			t.Errorf("after Close: %v", s)
		}
	})
}

func TestResourcesAreBounded(t *testing.T) {
	identity := func(key string) string { return key }
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		for i := range 1000 {
			w.release(w.acquire(t.Context(), l, fmt.Sprintf("invoice/%d", i)))
		}
		w.release(w.acquire(t.Context(), l, strings.Repeat("x", 200)))
		s := w.samples()
		s.want(t, samples{
			"distributed_lock.wait.count{resource=invoice/6}": 1,
			"distributed_lock.wait.count{resource=other}":     994,
		})
		resources := 0
		for series := range s {
			if strings.HasPrefix(series, "distributed_lock.wait.count") {
				resources++
			}
		}
		if resources != 8 {
			t.Errorf("%d resources, want 7 and other", resources)
		}
	}, otelhold.WithResource(identity), otelhold.WithMaxResources(7))
}

func TestDefaultBoundOfResources(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hooks := w.telemetry.Hooks(0)
		for i := range 2 * otelhold.DefaultMaxResources {
			hooks.HandedOver(holdfast.HandedOverEvent{Key: fmt.Sprint(i)})
		}
		hooks.HandedOver(holdfast.HandedOverEvent{Key: "99"})
		w.samples().want(t, samples{
			"holdfast.handovers{resource=other}": otelhold.DefaultMaxResources,
			"holdfast.handovers{resource=99}":    2,
		})
	}, otelhold.WithResource(func(key string) string { return key }))
}

// A name that is too long counts as "other", and is no resource of its own. A name that is not
// UTF-8 is made UTF-8.
func TestNamesOfResources(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hooks := w.telemetry.Hooks(0)
		for _, key := range []string{strings.Repeat("x", 129), otelhold.Other, "caf\xe9", "b"} {
			hooks.HandedOver(holdfast.HandedOverEvent{Key: key})
		}
		w.samples().want(t, samples{
			"holdfast.handovers{resource=other}":     3,
			"holdfast.handovers{resource=caf\uFFFD}": 1,
		})
	}, otelhold.WithResource(func(key string) string { return key }), otelhold.WithMaxResources(1))
}

func TestUpTo(t *testing.T) {
	for key, want := range map[string]string{"invoice/42/lines": "invoice", "report": "report",
		"/x": "", "": ""} {
		if got := otelhold.UpTo("/")(key); got != want {
			t.Errorf("%q is of the resource %q, want %q", key, got, want)
		}
	}
}

// As with all hooks, a function of the caller's that panics loses only its own events.
func TestResourceThatPanics(t *testing.T) {
	var panics bool
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		panics = true
		w.release(w.acquire(t.Context(), l, "key"))
		synctest.Wait()
		panics = false
		w.release(w.acquire(t.Context(), l, "key"))
		w.samples().want(t, samples{"distributed_lock.wait.count{resource=all}": 1})
	}, otelhold.WithResource(func(string) string {
		if panics {
			panic("no resource")
		}
		return "all"
	}))
}

func TestMarginIsAShareOfTheTTLGiven(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, err := holdfast.New(w.memory, holdfast.WithTTL(3*time.Second),
			holdfast.WithHooks(w.telemetry.Hooks(3*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		w.acquire(t.Context(), l, "key")
		time.Sleep(1500 * time.Millisecond)
		w.samples().want(t, samples{
			"holdfast.renewal_margin_ratio.sum{resource=all}": 1.968 / 3})
	})
}

// The margin of the first renewal of a lease is left out if the lease came out of the backend's
// queue, and only then.
func TestMarginsThatCount(t *testing.T) {
	type told = func(holdfast.Hooks)
	var (
		waits told = func(h holdfast.Hooks) {
			h.Waiting(holdfast.WaitingEvent{Key: "key", Context: context.Background()})
		}
		refused told = func(h holdfast.Hooks) {
			h.Refused(holdfast.RefusedEvent{Key: "key", Err: holdfast.ErrClosed})
		}
		acquired = func(local bool) told {
			return func(h holdfast.Hooks) {
				h.Acquired(holdfast.AcquiredEvent{Key: "key", Slot: -1, Local: local,
					Context: context.Background()})
			}
		}
		released = func(local bool) told {
			return func(h holdfast.Hooks) {
				h.Released(holdfast.ReleasedEvent{Key: "key", Slot: -1, Local: local})
			}
		}
		lost told = func(h holdfast.Hooks) {
			h.Lost(holdfast.LostEvent{Key: "key", Slot: -1,
				Err: &holdfast.LostError{Key: "key", Reason: holdfast.ErrClosed}})
		}
	)
	for _, test := range []struct {
		name   string
		events []told
		want   float64
	}{
		{"at once", []told{acquired(false)}, 1},
		{"out of the queue", []told{waits, acquired(false)}, 0},
		{"a reader joins those who share, while a writer waits", []told{waits, acquired(true)}, 1},
		{"another reader joins while it waits", []told{waits, acquired(true), acquired(false)}, 0},
		{"out of the queue, and passed on", []told{waits, acquired(false), released(true)}, 0},
		{"out of the queue, released, and again",
			[]told{waits, acquired(false), released(false), acquired(false)}, 1},
		{"out of the queue, lost, and again",
			[]told{waits, acquired(false), lost, acquired(false)}, 1},
		{"given up, and again", []told{waits, refused, acquired(false)}, 1},
	} {
		bubble(t, func(t *testing.T, w *world) {
			h := w.telemetry.Hooks(-1)
			for _, tell := range test.events {
				tell(h)
			}
			h.Renewed(holdfast.RenewedEvent{Key: "key", Slot: -1, Margin: holdfast.DefaultTTL / 2})
			s := w.samples()
			if got := s["holdfast.renewal_margin_ratio.count{resource=all}"]; got != test.want {
				t.Errorf("%s: %v margins, want %v", test.name, got, test.want)
			}
			if got := s["holdfast.renewal_margin_ratio.sum{resource=all}"]; got != test.want/2 {
				t.Errorf("%s: the margin is %v, want %v", test.name, got, test.want/2)
			}
		})
	}
}

// The global providers are the default, even if they are set later.
func TestGlobalProviders(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		telemetry, err := otelhold.New(otelhold.WithMeterProvider(nil),
			otelhold.WithTracerProvider(nil), otelhold.WithResource(nil))
		if err != nil {
			t.Fatal(err)
		}
		reader := sdkmetric.NewManualReader()
		otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
		otel.SetTracerProvider(w.tracers)
		defer otel.SetMeterProvider(noopmetric.NewMeterProvider())
		defer otel.SetTracerProvider(noop.NewTracerProvider())
		w.telemetry, w.reader = telemetry, reader
		l, _ := w.locker()
		w.telemetry.Follow("main", l)
		w.release(w.acquire(t.Context(), l, "key"))
		w.samples().want(t, samples{"distributed_lock.wait.count{resource=all}": 1,
			"holdfast.held{locker=main}": 0})
		w.one("holdfast.hold")
	})
}

func TestNilOption(t *testing.T) {
	if _, err := otelhold.New(nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

// Collections are made by exporters. If a function of the caller's panics in one, the program does
// not end, and everything else that is followed is collected.
func TestStatusThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		w.telemetry.Follow("main", l)
		w.telemetry.FollowNodes("none", nil)
		followsNodes(t, w)
		var all metricdata.ResourceMetrics
		if err := w.reader.Collect(t.Context(), &all); err != nil {
			t.Errorf("an exporter would give up all metrics for %v", err)
		}
		names := make(map[string]int)
		for _, m := range all.ScopeMetrics[0].Metrics {
			if data, ok := m.Data.(metricdata.Gauge[int64]); ok {
				names[m.Name] = len(data.DataPoints)
			}
			if data, ok := m.Data.(metricdata.Sum[int64]); ok {
				names[m.Name] = len(data.DataPoints)
			}
		}
		if names["holdfast.held"] != 1 || names["holdfast.nodes_needed"] != 1 {
			t.Errorf("collected %v", names)
		}
	})
}

// A collection costs the same however many locks are held.
func TestCollectionOfManyLocksIsCheap(t *testing.T) {
	// In a bubble no renewal is due meanwhile: its allocations would count.
	bubble(t, func(t *testing.T, w *world) {
		l, err := holdfast.New(w.memory, holdfast.WithHooks(w.telemetry.Hooks(0)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		w.telemetry.Follow("main", l)
		allocations := func(locks int) float64 {
			for i := l.Stats().Held; i < locks; i++ {
				w.acquire(t.Context(), l, fmt.Sprintf("key/%08d", i))
			}
			synctest.Wait() // nor are hooks at work
			return testing.AllocsPerRun(10, func() { w.collect() })
		}
		few, many := allocations(10), allocations(100_000)
		if many > few+100 {
			t.Errorf("%v allocations with 100,000 locks, and %v with ten", many, few)
		}
	}, otelhold.WithTracerProvider(noop.NewTracerProvider()))
}
