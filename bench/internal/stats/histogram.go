package stats

import (
	"math/bits"
	"time"
)

// Buckets is the number of buckets of a Histogram: 16 for every power of two up to eighteen
// minutes. So what is read from it is wrong by a thirtieth at most.
const Buckets = 37 * fine

const fine = 16 // buckets for each power of two

// Histogram counts durations by their size.
type Histogram [Buckets]int64

// Bucket returns the index of the bucket of d. The first bucket has negative durations, the last
// one durations that are too long.
func Bucket(d time.Duration) int {
	if d < fine {
		return int(max(0, d))
	}
	shift := bits.Len64(uint64(d)) - 5 // leaves five bits, the first of them 1
	return min(shift*fine+int(uint64(d)>>shift), Buckets-1)
}

// middle returns the middle of a bucket, the inverse of Bucket.
func middle(bucket int) time.Duration {
	if bucket < 2*fine {
		return time.Duration(bucket)
	}
	shift := bucket/fine - 1
	least := uint64(fine+bucket%fine) << shift
	return time.Duration(least + (uint64(1)<<shift-1)/2)
}

// Percentile returns about the smallest duration that at least the fraction p of all durations do
// not exceed, 0 < p <= 1. It returns 0 if there are none.
func (h *Histogram) Percentile(p float64) time.Duration {
	var total int64
	for _, n := range h {
		total += n
	}
	var seen int64
	for i, n := range h {
		if seen += n; n > 0 && float64(seen) >= p*float64(total)-1e-9 {
			return middle(i)
		}
	}
	return 0
}

// Add counts d.
func (h *Histogram) Add(d time.Duration) { h[Bucket(d)]++ }

// Merge adds the counts of another Histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other {
		h[i] += n
	}
}
