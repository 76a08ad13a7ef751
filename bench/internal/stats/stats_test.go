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

func TestPercentile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	for _, c := range []struct {
		values []int
		p      float64
		want   int
	}{
		{nil, 0.5, 0},
		{[]int{7}, 0.01, 7},
		{[]int{7}, 0.99, 7},
		{[]int{2, 1}, 0.5, 1},
		{[]int{3, 1, 2}, 0.5, 2},
		{[]int{3, 1, 2}, 1, 3},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.07, 7}, // 0.07*100 is a little more than 7 in floating point
		{hundred, 0.991, 100},
		{hundred, 1, 100},
	} {
		if got := stats.Percentile(slices.Clone(c.values), c.p); got != c.want {
			t.Errorf("Percentile of %d values, %v: %d, want %d", len(c.values), c.p, got, c.want)
		}
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
			t.Errorf("Median changed the order of %v: %v; rounds would no longer be side by side", before, c.values)
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
