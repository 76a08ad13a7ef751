package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chart is one picture of one metric, in one or more scenarios.
type chart struct {
	file, title string
	scenarios   []string // if it is a curve, one prefix of their names
	labels      []string // of the scenarios, if there are several
	metric      string
	log         bool
	curve       bool // the x axis is the number at the end of the scenarios' names
}

var charts = []chart{
	{file: "latency", title: "One server, one goroutine: acquire and release, p50",
		scenarios: []string{"latency"}, metric: "p50", log: true},
	{file: "throughput", title: "One server, 64 goroutines on keys of their own",
		scenarios: []string{"throughput-64"}, metric: "pairs", log: true},
	{file: "contended", title: "One server, one key, one process of 32 goroutines",
		scenarios: []string{"contended"}, metric: "locks", log: true},
	{file: "processes", title: "One server, one key, four processes of four goroutines",
		scenarios: []string{"processes"}, metric: "locks", log: true},
	{file: "processes-wait", title: "The same: longest time that a process went without the lock",
		scenarios: []string{"processes"}, metric: "wait", log: true},
	{file: "handover", title: "One server: from release to the next holder, p50",
		scenarios: []string{"handover"}, metric: "p50", log: true},
	{file: "work", title: "One key, 16 goroutines in 4 processes, 1 ms of work: time held",
		scenarios: []string{"work"}, metric: "held"},
	{file: "delay", title: "Handoffs between processes on a slower network",
		scenarios: []string{"processes-1ms", "processes-10ms"},
		labels:    []string{"1 ms", "10 ms"}, metric: "handoffs", log: true},
	{file: "waiters", title: "Server commands for each lock, by the number of waiters",
		scenarios: []string{"crowd-"}, metric: "commands", curve: true},
	{file: "keys", title: "Pairs a second, by the number of distinct keys locked",
		scenarios: []string{"stored-"}, metric: "pairs", curve: true},
	{file: "files", title: "Locks that are files, four processes of four goroutines",
		scenarios: []string{"files-processes"}, metric: "locks", log: true},
	{file: "command", title: "A command under a lock, p50",
		scenarios: []string{"command", "command-contended"}, labels: []string{"alone", "4 at once"},
		metric: "p50", log: true},
	{file: "five-latency", title: "Five nodes, one goroutine: acquire and release, p50",
		scenarios: []string{"five-latency"}, metric: "p50"},
	{file: "five-throughput", title: "Five nodes, 64 goroutines on keys of their own",
		scenarios: []string{"five-throughput-64"}, metric: "pairs"},
	{file: "five-faults", title: "Five nodes: the first acquire and release after a fault",
		scenarios: []string{"five-one-stopped", "five-two-stopped", "five-one-killed",
			"five-one-slow"},
		labels: []string{"one stopped", "two stopped", "one killed", "one slow"}, metric: "first",
		log: true},
	{file: "five-processes", title: "Five nodes, one key, four processes: handoffs between them",
		scenarios: []string{"five-processes"}, metric: "handoffs", log: true},
	{file: "five-handover", title: "Five nodes: from release to the next holder, p50",
		scenarios: []string{"five-handover"}, metric: "p50", log: true},
}

// writePlots draws the charts whose scenarios were measured.
func (r *report) writePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range charts {
		p, height := r.draw(c)
		if p == nil {
			continue
		}
		if err := p.Save(16*vg.Centimeter, height, filepath.Join(dir, c.file+".svg")); err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
	}
	return nil
}

func (r *report) scenario(name string) *scenarioReport {
	for _, s := range r.Scenarios {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// draw returns the plot and its height. The plot is nil if nothing was measured.
func (r *report) draw(c chart) (*plot.Plot, vg.Length) {
	p := plot.New()
	p.Title.Text = c.title
	p.Title.TextStyle.Font.Size = vg.Points(12)
	if c.curve {
		return r.drawCurves(p, c)
	}
	all := r.marks(c)
	if len(all.names) == 0 {
		return nil, 0
	}
	if err := all.addTo(p); err != nil {
		return nil, 0
	}
	p.Y.Label.Text = " " // a margin, or other fonts would be cut off at the edge
	p.Y.Width = 0
	p.Y.Min, p.Y.Max = -0.6, float64(len(all.names))-0.4
	p.X.Label.Text = strings.TrimSpace(all.metric.Unit + ", " + map[int]string{1: "more is better",
		-1: "less is better"}[all.metric.Better])
	if c.log {
		p.X.Scale = plot.LogScale{}
		p.X.Tick.Marker = plot.LogTicks{Prec: -1}
		p.X.Min = math.Pow(10, math.Floor(math.Log10(p.X.Min)-0.05))
		p.X.Max *= 4
	} else {
		p.X.Min = 0
		p.X.Max *= 1.15
	}
	return p, vg.Length(len(all.names))*0.62*vg.Centimeter + 2.6*vg.Centimeter
}

// marks are the medians and spreads of a chart, from the bottom up.
type marks struct {
	plotter.XYLabels
	plotter.XErrors
	names  []string
	colors []color.Color
	metric metric
}

func (r *report) marks(c chart) *marks {
	all := new(marks)
	for i, name := range slices.Backward(c.scenarios) {
		s := r.scenario(name)
		if s == nil {
			continue
		}
		all.metric = s.metric(c.metric)
		for _, d := range slices.Backward(s.Drivers) {
			v := d.Metrics[c.metric]
			if v == nil || c.log && v.Min <= 0 {
				continue
			}
			label := d.Name
			if len(c.labels) > 0 {
				label += ", " + c.labels[i]
			}
			all.XYs = append(all.XYs, plotter.XY{X: v.Median, Y: float64(len(all.names))})
			all.Labels = append(all.Labels, v.value(all.metric))
			all.XErrors = append(all.XErrors, struct{ Low, High float64 }{v.Min - v.Median,
				v.Max - v.Median})
			all.names = append(all.names, label)
			all.colors = append(all.colors, colorOf(d.Name))
		}
	}
	return all
}

func (all *marks) addTo(p *plot.Plot) error {
	spread, err := plotter.NewXErrorBars(all)
	if err != nil {
		return err
	}
	medians, err := plotter.NewScatter(all)
	if err != nil {
		return err
	}
	medians.GlyphStyleFunc = func(i int) draw.GlyphStyle {
		return draw.GlyphStyle{Color: all.colors[i], Radius: vg.Points(4),
			Shape: draw.CircleGlyph{}}
	}
	labels, err := plotter.NewLabels(all)
	if err != nil {
		return err
	}
	labels.Offset = vg.Point{X: vg.Points(6), Y: vg.Points(4)}
	p.Add(spread, medians, labels)
	p.NominalY(all.names...)
	return nil
}

// colorOf has one colour for Holdfast, one for other libraries, and one for floors.
func colorOf(driver string) color.Color {
	switch {
	case strings.HasPrefix(driver, ours):
		return color.RGBA{R: 0x1f, G: 0x6f, B: 0xb4, A: 0xff}
	case slices.Contains(peers, driver), slices.Contains(outside, driver):
		return color.RGBA{R: 0xd9, G: 0x82, B: 0x2b, A: 0xff}
	}
	return color.RGBA{R: 0x9a, G: 0x9a, B: 0x9a, A: 0xff}
}

// drawCurves draws a line for each driver; see chart.curve.
func (r *report) drawCurves(p *plot.Plot, c chart) (*plot.Plot, vg.Length) {
	names, lines := r.curves(c)
	if len(names) == 0 {
		return nil, 0
	}
	colors := []color.Color{colorOf(ours), color.RGBA{R: 0x6f, G: 0xb0, B: 0xdf, A: 0xff},
		colorOf(rueidisLock), colorOf(floor)}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.X.Max = 0
	for i, name := range names {
		line, points, err := plotter.NewLinePoints(lines[name])
		if err != nil {
			continue
		}
		line.Color, points.Color = colors[i%len(colors)], colors[i%len(colors)]
		points.Shape = draw.CircleGlyph{}
		p.Add(line, points)
		p.Legend.Add(name, line, points)
	}
	p.Legend.Top = true
	p.Y.Min = 0
	p.Y.Max *= 1.35
	if p.X.Min == p.X.Max {
		p.X.Min, p.X.Max = p.X.Min/2, p.X.Max*2
	}
	return p, 8 * vg.Centimeter
}

// curves returns the drivers in their order, and the points of each.
func (r *report) curves(c chart) (names []string, lines map[string]plotter.XYs) {
	lines = make(map[string]plotter.XYs)
	for _, s := range r.Scenarios {
		rest, ok := strings.CutPrefix(s.Name, c.scenarios[0])
		x, err := strconv.ParseFloat(rest, 64)
		if !ok || err != nil {
			continue
		}
		for _, d := range s.Drivers {
			v := d.Metrics[c.metric]
			if v == nil {
				continue
			}
			if lines[d.Name] == nil {
				names = append(names, d.Name)
			}
			lines[d.Name] = append(lines[d.Name], plotter.XY{X: x, Y: v.Median})
		}
	}
	return names, lines
}

func (s *scenarioReport) metric(name string) metric {
	if i := slices.IndexFunc(s.Metrics, named(name)); i >= 0 {
		return s.Metrics[i]
	}
	return metric{Name: name}
}
