package main

import (
	"fmt"
	"io"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// closeBy is by which factor two drivers have to differ for their order to mean something.
const closeBy = 1.1

// compare tells the pairs of drivers that are in one order in this run and in another order in the other, by the first
// metric of each scenario. Those count as different that one of the runs sees apart by more than a tenth.
func (r *report) compare(other *report, out io.Writer) {
	pairs, swapped := 0, 0
	for _, s := range r.Scenarios {
		o := other.scenario(s.Name)
		if o == nil {
			fmt.Fprintf(out, "%s: only in one of the runs\n", s.Name)
			continue
		}
		metric := s.Metrics[0].Name
		for i, d := range s.Drivers {
			for _, e := range s.Drivers[:i] {
				a, b := d.Metrics[metric], e.Metrics[metric]
				c, f := o.value(d.Name, metric), o.value(e.Name, metric)
				if a == nil || b == nil || c == nil || f == nil {
					continue
				}
				pairs++
				here, there := stats.Ratio(a.Rounds, b.Rounds), stats.Ratio(c.Rounds, f.Rounds)
				if (here-1)*(there-1) < 0 && max(here, 1/here, there, 1/there) > closeBy {
					swapped++
					fmt.Fprintf(out, "%s: %s is %.2f x %s in one run and %.2f x in the other\n", s.Name, d.Name, here, e.Name, there)
				}
			}
		}
	}
	fmt.Fprintf(out, "%d pairs of drivers, %d in another order\n", pairs, swapped)
}
