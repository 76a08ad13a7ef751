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
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chart is one picture, of one metric in one or several scenarios.
type chart struct {
	file, title string
	scenarios   []string // or what their names begin with, if it is a curve
	labels      []string // of the scenarios, where there are several
	metric      string
	log         bool
	curve       bool // over the number at the end of the scenarios' names
}

var charts = []chart{
	{file: "latency", title: "One server, one goroutine: acquire and release, p50", scenarios: []string{"latency"}, metric: "p50", log: true},
	{file: "throughput", title: "One server, 64 goroutines on keys of their own", scenarios: []string{"throughput-64"}, metric: "pairs", log: true},
	{file: "contended", title: "One server, one key, one process of 32 goroutines", scenarios: []string{"contended"}, metric: "locks", log: true},
	{file: "processes", title: "One server, one key, four processes of four goroutines", scenarios: []string{"processes"}, metric: "locks", log: true},
	{file: "processes-wait", title: "The same: longest time that a process went without the lock", scenarios: []string{"processes"}, metric: "wait", log: true},
	{file: "handover", title: "One server: from release to the next holder, p50", scenarios: []string{"handover"}, metric: "p50", log: true},
	{file: "work", title: "One key, 16 goroutines in 4 processes, 1 ms of work: time held", scenarios: []string{"work"}, metric: "held"},
	{file: "delay", title: "Handoffs between processes on a slower network", scenarios: []string{"processes-1ms", "processes-10ms"},
		labels: []string{"1 ms", "10 ms"}, metric: "handoffs", log: true},
	{file: "waiters", title: "Server commands for each lock, by the number of waiters", scenarios: []string{"crowd-"}, metric: "commands", curve: true},
	{file: "keys", title: "Pairs a second, by the number of distinct keys locked", scenarios: []string{"stored-"}, metric: "pairs", curve: true},
	{file: "five-latency", title: "Five nodes, one goroutine: acquire and release, p50", scenarios: []string{"five-latency"}, metric: "p50"},
	{file: "five-throughput", title: "Five nodes, 64 goroutines on keys of their own", scenarios: []string{"five-throughput-64"}, metric: "pairs"},
	{file: "five-faults", title: "Five nodes: the first acquire and release after a fault", scenarios: []string{"five-one-stopped", "five-two-stopped", "five-one-killed", "five-one-slow"},
		labels: []string{"one stopped", "two stopped", "one killed", "one slow"}, metric: "first", log: true},
	{file: "five-processes", title: "Five nodes, one key, four processes: handoffs between them", scenarios: []string{"five-processes"}, metric: "handoffs", log: true},
	{file: "five-handover", title: "Five nodes: from release to the next holder, p50", scenarios: []string{"five-handover"}, metric: "p50", log: true},
}

// writePlots draws those charts of which something was measured.
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

// draw returns nil if nothing was measured.
func (r *report) draw(c chart) (*plot.Plot, vg.Length) {
	p := plot.New()
	p.Title.Text = c.title
	p.Title.TextStyle.Font.Size = vg.Points(12)
	if c.curve {
		return r.drawCurves(p, c)
	}
	b := &bars{}
	var names []string
	unit, better := "", 0
	for i, name := range c.scenarios {
		s := r.scenario(name)
		if s == nil {
			continue
		}
		m := s.metric(c.metric)
		unit, better = m.Unit, m.Better
		for _, d := range s.Drivers {
			v := d.Metrics[c.metric]
			if v == nil || c.log && v.Median <= 0 {
				continue
			}
			label := d.Name
			if len(c.labels) > 0 {
				label += ", " + c.labels[i]
			}
			names = append(names, label)
			b.bars = append(b.bars, bar{v.Median, v.Min, v.Max, colorOf(d.Name), fmt.Sprintf("%.*f", m.Decimals, v.Median)})
		}
	}
	if len(names) == 0 {
		return nil, 0
	}
	// The first one on top.
	slices.Reverse(names)
	slices.Reverse(b.bars)
	p.Add(b)
	p.NominalY(names...)
	p.Y.Label.Text = " " // keeps the names from the edge, where other fonts would be cut off
	p.Y.Width = 0
	p.X.Label.Text = strings.TrimSpace(unit + ", " + map[int]string{1: "more is better", -1: "less is better"}[better])
	b.log = c.log
	if c.log {
		p.X.Scale = plot.LogScale{}
		p.X.Tick.Marker = plot.LogTicks{Prec: -1}
		p.X.Min = math.Pow(10, math.Floor(math.Log10(p.X.Min)-0.05))
		p.X.Max *= 4
	} else {
		p.X.Min = 0
		p.X.Max *= 1.15
	}
	return p, vg.Length(len(names))*0.62*vg.Centimeter + 2.6*vg.Centimeter
}

// colorOf tells Holdfast, what is no lock or nothing but one, and other libraries apart.
func colorOf(driver string) color.Color {
	switch {
	case strings.HasPrefix(driver, ours):
		return color.RGBA{R: 0x1f, G: 0x6f, B: 0xb4, A: 0xff}
	case slices.Contains(peers, driver), slices.Contains(outside, driver):
		return color.RGBA{R: 0xd9, G: 0x82, B: 0x2b, A: 0xff}
	}
	return color.RGBA{R: 0x9a, G: 0x9a, B: 0x9a, A: 0xff}
}

// bars is a bar chart whose scale may be logarithmic, with the numbers written beside the bars.
type bars struct {
	bars []bar
	log  bool
}

type bar struct {
	value, least, most float64
	color              color.Color
	text               string
}

// Plot implements plot.Plotter.
func (b *bars) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	style := text.Style{Color: color.Black, Font: p.X.Tick.Label.Font, XAlign: draw.XLeft, YAlign: draw.YCenter, Handler: p.TextHandler}
	half := vg.Points(5)
	for i, one := range b.bars {
		y, left, right := toY(float64(i)), c.Min.X, toX(one.value)
		c.FillPolygon(one.color, []vg.Point{{X: left, Y: y - half}, {X: right, Y: y - half}, {X: right, Y: y + half}, {X: left, Y: y + half}})
		end := right
		if one.most > one.least && (one.least > 0 || !b.log) {
			line := draw.LineStyle{Color: color.Black, Width: vg.Points(0.7)}
			c.StrokeLine2(line, toX(one.least), y, toX(one.most), y)
			end = max(end, toX(one.most))
		}
		c.FillText(style, vg.Point{X: end + vg.Points(3), Y: y}, one.text)
	}
}

// DataRange implements plot.DataRanger.
func (b *bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax = math.Inf(1), math.Inf(-1)
	for _, one := range b.bars {
		least := one.least
		if least <= 0 {
			least = one.value
		}
		xmin, xmax = min(xmin, least), max(xmax, one.most, one.value)
	}
	return xmin, xmax, -0.6, float64(len(b.bars)) - 0.4
}

// drawCurves draws a line for each driver, over the number that the names of scenarios end with.
func (r *report) drawCurves(p *plot.Plot, c chart) (*plot.Plot, vg.Length) {
	var names []string
	lines := make(map[string]plotter.XYs)
	for _, s := range r.Scenarios {
		rest, ok := strings.CutPrefix(s.Name, c.scenarios[0])
		x, err := strconv.ParseFloat(rest, 64)
		if !ok || err != nil {
			continue
		}
		m := s.metric(c.metric)
		p.Y.Label.Text = m.Unit
		for _, d := range s.Drivers {
			if v := d.Metrics[c.metric]; v != nil {
				if lines[d.Name] == nil {
					names = append(names, d.Name)
				}
				lines[d.Name] = append(lines[d.Name], plotter.XY{X: x, Y: v.Median})
			}
		}
	}
	if len(names) == 0 {
		return nil, 0
	}
	colors := []color.Color{colorOf(ours), color.RGBA{R: 0x6f, G: 0xb0, B: 0xdf, A: 0xff}, colorOf(rueidisLock), colorOf(floor)}
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

func (s *scenarioReport) metric(name string) metric {
	if i := slices.IndexFunc(s.Metrics, named(name)); i >= 0 {
		return s.Metrics[i]
	}
	return metric{Name: name}
}
