package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is the results of a run, as they are written as JSON. A number that was not measured is
// absent.
type report struct {
	Plan    string            `json:"plan"`
	Rounds  int               `json:"rounds"`
	System  string            `json:"system"`
	CPUs    int               `json:"cpus"`
	Go      string            `json:"go"`
	Redis   string            `json:"redis"`
	Modules map[string]string `json:"modules"`
	// versions of other servers and languages
	Programs  map[string]string `json:"programs,omitempty"`
	Seconds   float64           `json:"seconds"`
	Scenarios []*scenarioReport `json:"scenarios"`
}

type scenarioReport struct {
	Name    string          `json:"name"`
	Title   string          `json:"title"`
	Floor   string          `json:"floor,omitempty"`
	Metrics []metric        `json:"metrics"` // ratios in tables are about the first one
	Drivers []*driverReport `json:"drivers"`
	Goals   []*goalReport   `json:"goals"`
}

type driverReport struct {
	Name    string                   `json:"name"`
	Error   string                   `json:"error,omitempty"`
	Metrics map[string]*metricReport `json:"metrics,omitempty"`
}

type metricReport struct {
	Unit   string    `json:"unit,omitempty"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Rounds []float64 `json:"rounds"`

	// medians of the ratios, round by round
	ToFloor    *float64 `json:"to_floor,omitempty"`
	ToBestPeer *float64 `json:"to_best_peer,omitempty"`
}

type goalReport struct {
	Goal    string   `json:"goal"`
	Limit   float64  `json:"limit"`
	Value   *float64 `json:"value,omitempty"`
	Reached *bool    `json:"reached,omitempty"` // absent if not measured
}

func newReport(e *env, programs map[string]string) (*report, error) {
	r := &report{Plan: e.name, Rounds: e.rounds, System: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs: runtime.NumCPU(), Go: runtime.Version(), Modules: make(map[string]string),
		Programs: programs}
	version, err := e.common.client.InfoMap(context.Background(), "server").Result()
	if err != nil {
		return nil, err
	}
	r.Redis = version["Server"]["redis_version"]
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if slices.ContainsFunc([]string{"redsync", "redislock", "rueidis", "go-redis",
				"etcd/client/v3", "jackc/pgx"}, func(s string) bool {
				return strings.Contains(module.Path, s)
			}) {
				r.Modules[module.Path] = module.Version
			}
		}
	}
	return r, nil
}

// number returns nil for NaN and infinities, which JSON does not have.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// add adds the results of a scenario.
func (r *report) add(s *scenario, results *results) {
	sr := &scenarioReport{Name: s.name, Title: s.title, Floor: s.floor, Metrics: s.metrics}
	r.Scenarios = append(r.Scenarios, sr)
	for _, name := range s.drivers {
		d := &driverReport{Name: name, Metrics: make(map[string]*metricReport)}
		sr.Drivers = append(sr.Drivers, d)
		if err := results.errors[name]; err != nil {
			d.Error = err.Error()
		}
		for _, m := range s.metrics {
			if mr := results.report(name, m); mr != nil {
				d.Metrics[m.Name] = mr
			}
		}
	}
	if err := results.errors["server"]; err != nil {
		sr.Drivers = append(sr.Drivers, &driverReport{Name: "server", Error: err.Error()})
	}
	for _, g := range s.goals {
		gr := &goalReport{Goal: g.text, Limit: g.limit, Value: number(g.value(results))}
		if gr.Value != nil {
			reached := g.reached(*gr.Value)
			gr.Reached = &reached
		}
		sr.Goals = append(sr.Goals, gr)
	}
}

// report returns nil if the metric was not measured.
func (r *results) report(driver string, m metric) *metricReport {
	values := slices.DeleteFunc(r.values(driver, m.Name), func(v float64) bool {
		return number(v) == nil
	})
	if len(values) == 0 {
		return nil
	}
	mr := &metricReport{Unit: m.Unit, Median: r.median(driver, m.Name), Min: slices.Min(values),
		Max: slices.Max(values), Rounds: values}
	if m.Better != 0 {
		mr.ToFloor = number(r.ratio(m.Name, driver, r.reference(r.scenario.floor, m)))
		mr.ToBestPeer = number(r.ratio(m.Name, driver, r.reference(bestOf, m)))
	}
	return mr
}

// conditions returns the system and the versions of a run.
func (r *report) conditions() string {
	all := []string{fmt.Sprintf("%s with %d CPUs", r.System, r.CPUs), r.Go, "Redis " + r.Redis}
	// Several drivers may need one program.
	all = append(all, slices.Compact(slices.Sorted(maps.Values(r.Programs)))...)
	for _, name := range slices.Sorted(maps.Keys(r.Modules)) {
		all = append(all, fmt.Sprintf("`%s` %s", name, r.Modules[name]))
	}
	return strings.Join(all, ", ")
}

// print writes the scenario for a terminal.
func (s *scenarioReport) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s: %s\n", s.Name, s.Title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range s.table() {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	w.Flush()
	for _, line := range s.remarks() {
		fmt.Fprintln(out, " ", line)
	}
}

// table returns the head, and a row for each driver that was measured. The spread and the ratios of
// the first metric follow it.
func (s *scenarioReport) table() (rows [][]string) {
	beside := []string{"spread", "x best peer"}
	if s.Floor != "" {
		beside = []string{"spread", "x " + s.Floor, "x best peer"}
	}
	head := []string{""}
	for _, m := range s.Metrics {
		head = append(head, strings.TrimSpace(m.Name+" "+m.Unit))
	}
	head = slices.Insert(head, 2, beside...)
	rows = append(rows, head)
	for _, d := range s.Drivers {
		if len(d.Metrics) > 0 {
			rows = append(rows, s.row(d))
		}
	}
	return rows
}

func (s *scenarioReport) row(d *driverReport) []string {
	row := []string{d.Name}
	for i, m := range s.Metrics {
		v := d.Metrics[m.Name]
		if v == nil {
			v = &metricReport{Median: math.NaN()}
		}
		row = append(row, v.value(m))
		if i > 0 {
			continue
		}
		row = append(row, v.spread(m))
		if s.Floor != "" {
			row = append(row, ratioText(v.ToFloor))
		}
		row = append(row, ratioText(v.ToBestPeer))
	}
	return row
}

const notMeasured = "-"

func (v *metricReport) value(m metric) string {
	if math.IsNaN(v.Median) {
		return notMeasured
	}
	return fmt.Sprintf("%.*f", m.Decimals, v.Median)
}

func (v *metricReport) spread(m metric) string {
	if len(v.Rounds) < 2 {
		return notMeasured
	}
	return fmt.Sprintf("%.*f .. %.*f", m.Decimals, v.Min, m.Decimals, v.Max)
}

func ratioText(v *float64) string {
	if v == nil {
		return notMeasured
	}
	return fmt.Sprintf("%.3g", *v)
}

// remarks returns the errors of drivers, and the goals.
func (s *scenarioReport) remarks() (lines []string) {
	for _, d := range s.Drivers {
		if d.Error != "" {
			lines = append(lines,
				fmt.Sprintf("%s failed: %s", d.Name, strings.Join(strings.Fields(d.Error), " ")))
		}
	}
	for _, g := range s.Goals {
		switch {
		case g.Value == nil:
			lines = append(lines, "not measured: "+g.Goal)
		case *g.Reached:
			lines = append(lines, fmt.Sprintf("reached: %s: %.4g", g.Goal, *g.Value))
		default:
			lines = append(lines, fmt.Sprintf("**not reached**: %s: %.4g", g.Goal, *g.Value))
		}
	}
	return lines
}

func (r *report) tail(out io.Writer) {
	reached := 0
	for _, s := range r.Scenarios {
		for _, g := range s.Goals {
			if g.Reached != nil && *g.Reached {
				reached++
			}
		}
	}
	fmt.Fprintf(out, "\n%d goals reached, %d not, in %.0f seconds.\n", reached,
		len(r.missed()), r.Seconds)
}

// publish draws plots and writes the document, where the path is not "".
func (r *report) publish(plots, document string) error {
	if plots != "" {
		if err := r.writePlots(plots); err != nil {
			return err
		}
	}
	if document != "" {
		return r.writeMarkdown(document, plots)
	}
	return nil
}

func readReport(name string) (*report, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := new(report)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// failure returns the errors of our own drivers and floors. A goal that was not reached is a
// result, and so is an error of another library.
func (r *report) failure() error {
	var failed []error
	for _, s := range r.Scenarios {
		for _, d := range s.Drivers {
			if d.Error != "" && !slices.Contains(peers, d.Name) &&
				!slices.Contains(others, d.Name) {
				failed = append(failed, fmt.Errorf("%s, %s: %s", s.Name, d.Name, d.Error))
			}
		}
	}
	return errors.Join(failed...)
}
