package stats_test

import (
	"math"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

func same(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-12
}

func TestQuantile(t *testing.T) {
	thousand := make([]float64, 1000)
	for i := range thousand {
		thousand[i] = float64(1000 - i)
	}
	for _, c := range []struct {
		values      []float64
		q           float64
		least, most float64
	}{
		{[]float64{7}, 0.01, 7, 7},
		{[]float64{7}, 0.99, 7, 7},
		{[]float64{3, 1, 2}, 1, 3, 3},
		{thousand, 0.5, 500, 501},
		{thousand, 0.99, 990, 991},
		{thousand, 1, 1000, 1000},
	} {
		if got := stats.Quantile(c.values, c.q); got < c.least || got > c.most {
			t.Errorf("Quantile of %d values, %v: %v, want %v to %v", len(c.values), c.q, got,
				c.least, c.most)
		}
	}
	if got := stats.Quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing %v, want NaN", got)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, math.NaN()},
		{[]float64{4}, 4},
		{[]float64{9, 1}, 5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{9, 1, 2, 4}, 3},
	} {
		before := slices.Clone(c.values)
		if got := stats.Median(c.values); !same(got, c.want) {
			t.Errorf("Median(%v) is %v, want %v", before, got, c.want)
		}
		if !slices.Equal(before, c.values) {
			t.Errorf("Median changed the order of %v: %v; rounds would no longer be side by side",
				before, c.values)
		}
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   float64
	}{
		{nil, math.NaN()},
		{[]float64{0, 0}, math.NaN()},
		{[]float64{5}, 1},
		{[]float64{3, 3, 3}, 1},
		{[]float64{0, 8, 0, 0}, 0.25},
		{[]float64{1, 3}, 0.8},
	} {
		if got := stats.Jain(c.shares); !same(got, c.want) {
			t.Errorf("Jain(%v) is %v, want %v", c.shares, got, c.want)
		}
	}
}

func TestRatio(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{nil, nil, math.NaN()},
		{[]float64{1}, []float64{0}, math.NaN()},
		{[]float64{2}, []float64{4}, 0.5},
		// The second round was slow for both: the ratio of medians would be 20/10.
		{[]float64{10, 200, 20}, []float64{10, 100, 5}, 2},
		{[]float64{10, 20, 30}, []float64{10}, 1},
	} {
		if got := stats.Ratio(c.a, c.b); !same(got, c.want) {
			t.Errorf("Ratio(%v, %v) is %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
