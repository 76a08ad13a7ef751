// Package stats condenses measurements: quantiles, medians, fairness, and ratios of values that
// were measured in turns.
package stats

import "github.com/aclements/go-moremath/stats"

// Quantile returns the value that the part q of the values do not exceed, 0 <= q <= 1. It
// interpolates between two values. It does not sort values. It returns NaN if there are none.
func Quantile(values []float64, q float64) float64 { return stats.Sample{Xs: values}.Quantile(q) }

// Median returns the value in the middle, or the mean of the two in the middle. It does not sort
// values. It returns NaN if there are none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Jain returns Jain's fairness index of shares: 1 if all are equal, 1/n if one has everything. It
// returns NaN if all shares are 0.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Ratios returns the ratios a[i] to b[i] of values that were measured in the same round. A slow
// round is slow for both and cancels out, which it does not in a ratio of medians. Ratios leaves
// out values without a counterpart, and those where b[i] is 0.
func Ratios(a, b []float64) (ratios []float64) {
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return ratios
}

// Ratio returns the median of the ratios. It returns NaN if there are none.
func Ratio(a, b []float64) float64 { return Median(Ratios(a, b)) }
