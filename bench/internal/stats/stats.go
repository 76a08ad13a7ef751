// Package stats condenses measurements: percentiles, medians, fairness, and ratios of what was measured in turns.
package stats

import (
	"cmp"
	"math"
	"slices"
)

// Percentile returns the smallest value that at least the fraction p of the values do not exceed, 0 < p <= 1. It sorts
// values. Of no values it is 0.
func Percentile[T cmp.Ordered](values []T, p float64) (value T) {
	if len(values) == 0 {
		return value
	}
	slices.Sort(values)
	// The product may come out a hair above a whole number that it ought to be.
	rank := int(math.Ceil(p*float64(len(values)) - 1e-9))
	return values[min(max(rank, 1), len(values))-1]
}

// Median returns the value in the middle, or the mean of the two in the middle. It leaves values in their order. Of no
// values it is NaN.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Jain returns Jain's fairness index of shares: 1 if all are equal, 1/n if one has everything. Where there is nothing to share, it
// is NaN.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Ratio returns the median of the ratios of values measured side by side, a[i] to b[i]. What slows down a whole round
// of measurements shows in both and cancels out, which it does not in a ratio of medians. If one has more values than the other,
// the rest is left out. Of no values it is NaN.
func Ratio(a, b []float64) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return Median(ratios)
}
