package main

import (
	"fmt"
	"io"
	"math"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// closeBy is the factor from which on the order of two drivers means something.
const closeBy = 1.1

// compare prints the pairs of drivers whose order by the first metric differs between two runs, if
// they are apart by more than closeBy in one of the runs.
func (r *report) compare(other *report, out io.Writer) {
	pairs, swapped := 0, 0
	for _, s := range r.Scenarios {
		o := other.scenario(s.Name)
		if o == nil {
			fmt.Fprintf(out, "%s: only in one of the runs\n", s.Name)
			continue
		}
		s.eachPair(func(driver, reference string) {
			here, there := s.ratio(driver, reference), o.ratio(driver, reference)
			if math.IsNaN(here) || math.IsNaN(there) {
				return
			}
			pairs++
			if (here-1)*(there-1) < 0 && max(here, 1/here, there, 1/there) > closeBy {
				swapped++
				fmt.Fprintf(out, "%s: %s is %.2f x %s in one run and %.2f x in the other\n", s.Name,
					driver, here, reference, there)
			}
		})
	}
	fmt.Fprintf(out, "%d pairs of drivers, %d in another order\n", pairs, swapped)
}

func (s *scenarioReport) eachPair(f func(driver, reference string)) {
	for i, d := range s.Drivers {
		for _, e := range s.Drivers[:i] {
			f(d.Name, e.Name)
		}
	}
}

// ratio returns the ratio of two drivers by the first metric, or NaN if one was not measured.
func (s *scenarioReport) ratio(driver, reference string) float64 {
	a, b := s.value(driver, s.Metrics[0].Name), s.value(reference, s.Metrics[0].Name)
	if a == nil || b == nil {
		return math.NaN()
	}
	return stats.Ratio(a.Rounds, b.Rounds)
}
