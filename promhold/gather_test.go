package promhold_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/promhold"
)

// samples are the values of a scrape by their series, as name{label="value"}. Of a histogram there
// are _count, _sum, and _bucket with the label le last.
type samples map[string]float64

// families scrapes, by a registry that checks what collectors promise.
func families(t testing.TB, c prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func gather(t testing.TB, c prometheus.Collector) samples {
	t.Helper()
	all := make(samples)
	for _, f := range families(t, c) {
		for _, m := range f.Metric {
			labels := ""
			for _, l := range m.Label {
				labels += fmt.Sprintf(",%s=%q", l.GetName(), l.GetValue())
			}
			labels = strings.TrimPrefix(labels, ",")
			series := f.GetName() + "{" + labels + "}"
			switch h := m.Histogram; {
			case m.Counter != nil:
				all[series] = m.Counter.GetValue()
			case m.Gauge != nil:
				all[series] = m.Gauge.GetValue()
			case h != nil:
				all[f.GetName()+"_count{"+labels+"}"] = float64(h.GetSampleCount())
				all[f.GetName()+"_sum{"+labels+"}"] = h.GetSampleSum()
				for _, b := range h.Bucket {
					all[fmt.Sprintf("%s_bucket{%s,le=%q}", f.GetName(), labels,
						fmt.Sprint(b.GetUpperBound()))] = float64(b.GetCumulativeCount())
				}
			default:
				t.Fatalf("%s is neither counter, gauge nor histogram", series)
			}
		}
	}
	return all
}

// want compares some series of a scrape.
func (s samples) want(t *testing.T, want samples) {
	t.Helper()
	for series, value := range want {
		if got, ok := s[series]; !ok {
			t.Errorf("there is no %s", series)
		} else if got-value > 1e-9 || value-got > 1e-9 {
			t.Errorf("%s is %v, want %v", series, got, value)
		}
	}
}

// world is Metrics, and a memory to make Lockers on. Its time is that of a bubble.
type world struct {
	t       *testing.T
	metrics *promhold.Metrics
	memory  *memhold.Backend
}

// bubble runs f in a bubble of fake time.
func bubble(t *testing.T, options []promhold.Option, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t, promhold.New(options...), memhold.New()}
		t.Cleanup(func() { w.memory.Close() })
		f(t, w)
	})
}

// locker makes a Locker of another process that is watched, and its faults.
func (w *world) locker(options ...holdfast.Option) (*holdfast.Locker, memhold.Faults) {
	w.t.Helper()
	client := w.memory.Client()
	w.t.Cleanup(func() { client.Close() })
	l, err := holdfast.New(client,
		append(options, holdfast.WithHooks(w.metrics.Hooks(holdfast.DefaultTTL)))...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	return l, client.Faults()
}

func (w *world) acquire(l *holdfast.Locker, key string,
	options ...holdfast.AcquireOption) *holdfast.Lock {
	w.t.Helper()
	lock, err := l.Acquire(w.t.Context(), key, options...)
	if err != nil {
		w.t.Fatal(err)
	}
	return lock
}

func (w *world) release(lock *holdfast.Lock) {
	w.t.Helper()
	if err := lock.Release(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// scrape scrapes when hooks have been told all that has happened.
func (w *world) scrape() samples {
	w.t.Helper()
	synctest.Wait()
	return gather(w.t, w.metrics)
}
