package sqltest_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fence"
)

// side is one of two writes that are compared.
type side struct {
	write func(value int) error // stores the value, which is another one each time
	read  func() (int, error)   // returns the value that is stored
}

// lastToken is the newest one of all guards.
var lastToken fence.Token

// nextToken is the token of a new holder. Each guarded write has its own: some guards have nothing
// to write for a token that they have already.
func nextToken() fence.Token {
	lastToken++
	return lastToken
}

// keeping is the side of a guard that has the last token in the end.
func (s side) keeping(newest func() (fence.Token, error)) side {
	read := s.read
	s.read = func() (int, error) {
		if token, err := newest(); err != nil || token != lastToken {
			return 0, fmt.Errorf("the guard has token %v, %v; the last is %v", token, err,
				lastToken)
		}
		return read()
	}
	return s
}

// times says how long each write took, bare and guarded.
type times [2][]time.Duration

// pair is what was measured of one form.
type pair struct {
	store, form, beside string
	runs                []times // of -count
}

// pairs are what this program has measured, in the order of the benchmarks.
var pairs []*pair

// compare measures two writes in turns, each as often first as the other, so that whatever else the
// machine does disturbs both alike. It reports medians and their ratio.
func compare(b *testing.B, store, form, beside string, bare, guarded side) {
	b.Run(strings.ReplaceAll(form, "`", ""), func(b *testing.B) {
		run, err := inTurns(b.Loop, bare, guarded)
		if err != nil {
			b.Fatal(err)
		}
		p := pairOf(store, form, beside)
		p.runs = append(p.runs, run)
		b.ReportMetric(0, "ns/op") // of both together says nothing
		b.ReportMetric(float64(median(run[0])), "bare-ns")
		b.ReportMetric(float64(median(run[1])), "guarded-ns")
		b.ReportMetric(run.ratio(), "ratio")
	})
}

// inTurns writes for as long as loop returns true. It fails if a write fails, or if at the end one
// side has not stored what it wrote last: a guard that refuses is quick.
func inTurns(loop func() bool, bare, guarded side) (run times, err error) {
	sides := [2]side{bare, guarded}
	value := 0
	next := func(s side) error {
		value++
		return s.write(value)
	}
	for range 2 { // connections and statements that are made once
		for _, s := range sides {
			if err := next(s); err != nil {
				return run, err
			}
		}
	}
	var last [2]int
	for i := 0; loop(); i++ {
		for n := range sides {
			which := (i + n) % 2
			start := time.Now()
			err := next(sides[which])
			run[which] = append(run[which], time.Since(start))
			if err != nil {
				return run, err
			}
			last[which] = value
		}
	}
	for which, s := range sides {
		stored, err := s.read()
		if err != nil {
			return run, err
		}
		if stored != last[which] {
			return run, fmt.Errorf("the %s side has stored %d; the last that it wrote is %d",
				[...]string{"bare", "guarded"}[which], stored, last[which])
		}
	}
	return run, nil
}

func pairOf(store, form, beside string) *pair {
	for _, p := range pairs {
		if p.store == store && p.form == form {
			return p
		}
	}
	p := &pair{store: store, form: form, beside: beside}
	pairs = append(pairs, p)
	return p
}

func median(took []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}

// ratio is how much longer the median of the guarded writes is.
func (t times) ratio() float64 {
	return float64(median(t[1])) / float64(median(t[0]))
}

// all are the times of all runs.
func (p *pair) all() (all times) {
	for _, run := range p.runs {
		for which, took := range run {
			all[which] = append(all[which], took...)
		}
	}
	return all
}

// ratios are the runs' ratios: the least, the median and the greatest. The further apart they are,
// the noisier it was.
func (p *pair) ratios() (least, middle, greatest float64) {
	var ratios []float64
	for _, run := range p.runs {
		ratios = append(ratios, run.ratio())
	}
	slices.Sort(ratios)
	return ratios[0], ratios[len(ratios)/2], ratios[len(ratios)-1]
}

// writeTable writes what was measured as the table of docs/fencing.md.
func writeTable(w io.Writer, pairs []*pair) {
	if len(pairs) == 0 {
		return
	}
	fmt.Fprint(w, "\n| store | guard | beside | bare | guarded | ratio | of each run | writes |\n",
		"|---|---|---|---:|---:|---:|---:|---:|\n")
	for _, p := range pairs {
		all := p.all()
		least, middle, greatest := p.ratios()
		fmt.Fprintf(w, "| %s | %s | %s | %v | %v | %.2f | %.2f to %.2f | %d |\n", p.store, p.form,
			p.beside, median(all[0]).Round(time.Microsecond),
			median(all[1]).Round(time.Microsecond), middle, least, greatest, len(all[0]))
	}
}
