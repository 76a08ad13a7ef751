package stats_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

func TestHistogramIsCloseToWhatItCounted(t *testing.T) {
	for d := time.Duration(0); d < 10*time.Minute; d += 1 + d/7 {
		var h stats.Histogram
		h.Add(d)
		got := h.Percentile(1)
		if miss := (got - d).Abs(); miss > d/30 {
			t.Errorf("%v is read as %v", d, got)
		}
	}
}

func TestHistogramPercentiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var whole stats.Histogram
	var all []float64
	for range 3 {
		var h stats.Histogram
		for range 1000 {
			d := time.Duration(random.ExpFloat64() * 1e6)
			all = append(all, float64(d))
			h.Add(d)
		}
		whole.Merge(&h)
	}
	for _, p := range []float64{0.01, 0.5, 0.99, 1} {
		want := time.Duration(stats.Quantile(all, p))
		if got := whole.Percentile(p); (got - want).Abs() > want/30+1 {
			t.Errorf("%v of all: %v, want %v", p, got, want)
		}
	}
}

func TestHistogramOfNothingAndOfTooMuch(t *testing.T) {
	var h stats.Histogram
	if got := h.Percentile(0.5); got != 0 {
		t.Errorf("of nothing %v, want 0", got)
	}
	h.Add(-time.Second)
	if got := h.Percentile(1); got != 0 {
		t.Errorf("of a negative one %v, want 0", got)
	}
	h.Add(24 * time.Hour)
	if got := h.Percentile(1); got < 10*time.Minute {
		t.Errorf("of a day %v, want the most there is", got)
	}
}
