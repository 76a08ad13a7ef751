package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is what is written as JSON. A number that was not measured is absent.
type report struct {
	Plan      string            `json:"plan"`
	Rounds    int               `json:"rounds"`
	System    string            `json:"system"`
	CPUs      int               `json:"cpus"`
	Go        string            `json:"go"`
	Redis     string            `json:"redis"`
	Modules   map[string]string `json:"modules"`
	Programs  map[string]string `json:"programs,omitempty"` // versions of other servers and languages
	Seconds   float64           `json:"seconds"`
	Scenarios []*scenarioReport `json:"scenarios"`
}

type scenarioReport struct {
	Name    string          `json:"name"`
	Title   string          `json:"title"`
	Floor   string          `json:"floor,omitempty"`
	Metrics []metric        `json:"metrics"` // the first one is what ratios in tables are about
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

	// Medians of the ratios round by round.
	ToFloor    *float64 `json:"to_floor,omitempty"`
	ToBestPeer *float64 `json:"to_best_peer,omitempty"`
}

type goalReport struct {
	Goal    string   `json:"goal"`
	Limit   float64  `json:"limit"`
	Value   *float64 `json:"value,omitempty"`
	Reached *bool    `json:"reached,omitempty"` // absent if it was not measured
}

func newReport(e *env, p plan, drivers []string) (*report, error) {
	r := &report{Plan: p.name, Rounds: p.rounds, System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(), Modules: make(map[string]string), Programs: versions(drivers)}
	reply, err := e.common[0].do("INFO", "server")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(reply.(string)) {
		if version, ok := strings.CutPrefix(line, "redis_version:"); ok {
			r.Redis = strings.TrimSpace(version)
		}
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if slices.ContainsFunc([]string{"redsync", "redislock", "rueidis", "go-redis", "etcd/client/v3", "jackc/pgx"}, func(s string) bool { return strings.Contains(module.Path, s) }) {
				r.Modules[module.Path] = module.Version
			}
		}
	}
	return r, nil
}

// number is nil for what JSON has no form for.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// add takes in what a scenario brought.
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
			values := slices.DeleteFunc(results.values(name, m.Name), func(v float64) bool { return number(v) == nil })
			if len(values) == 0 {
				continue
			}
			mr := &metricReport{Unit: m.Unit, Median: results.median(name, m.Name), Min: slices.Min(values), Max: slices.Max(values), Rounds: values}
			d.Metrics[m.Name] = mr
			if m.Better != 0 {
				mr.ToFloor = number(results.ratio(m.Name, name, s.floor))
				mr.ToBestPeer = number(results.ratio(m.Name, name, results.bestPeer(m)))
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

func (r *report) head(out io.Writer) {
	fmt.Fprintf(out, "%s run on %s, %d CPUs, %s, Redis %s\n", r.Plan, r.System, r.CPUs, r.Go, r.Redis)
	for _, name := range slices.Sorted(maps.Keys(r.Programs)) {
		fmt.Fprintf(out, "  %s\n", r.Programs[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Modules)) {
		fmt.Fprintf(out, "  %s %s\n", name, r.Modules[name])
	}
	fmt.Fprintf(out, "Medians of the rounds, in parentheses the least and the greatest. Ratios are medians of the ratios round by round.\n")
}

// print writes a table of the drivers and then the goals.
func (s *scenarioReport) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s: %s\n", s.Name, s.Title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t")
	for i, m := range s.Metrics {
		fmt.Fprintf(w, "%s\t", strings.TrimSpace(m.Name+" "+m.Unit))
		if i == 0 {
			fmt.Fprintf(w, "x %s\tx best peer\t", orDash(s.Floor))
		}
	}
	fmt.Fprintln(w)
	for _, d := range s.Drivers {
		fmt.Fprintf(w, "%s\t", d.Name)
		for i, m := range s.Metrics {
			v := d.Metrics[m.Name]
			if v == nil {
				fmt.Fprint(w, "-\t")
				v = new(metricReport)
			} else if len(v.Rounds) == 1 {
				fmt.Fprintf(w, "%.*f\t", m.Decimals, v.Median)
			} else {
				fmt.Fprintf(w, "%.*f (%.*f..%.*f)\t", m.Decimals, v.Median, m.Decimals, v.Min, m.Decimals, v.Max)
			}
			if i == 0 {
				fmt.Fprintf(w, "%s\t%s\t", ratioText(v.ToFloor), ratioText(v.ToBestPeer))
			}
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	for _, d := range s.Drivers {
		if d.Error != "" {
			fmt.Fprintf(out, "  ERROR %s: %s\n", d.Name, d.Error)
		}
	}
	for _, g := range s.Goals {
		switch {
		case g.Value == nil:
			fmt.Fprintf(out, "  not measured  %s\n", g.Goal)
		case *g.Reached:
			fmt.Fprintf(out, "  reached       %s: %.4g\n", g.Goal, *g.Value)
		default:
			fmt.Fprintf(out, "  NOT REACHED   %s: %.4g\n", g.Goal, *g.Value)
		}
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func ratioText(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g", *v)
}

func (r *report) tail(out io.Writer) {
	reached, missed := 0, 0
	for _, s := range r.Scenarios {
		for _, g := range s.Goals {
			switch {
			case g.Reached == nil:
			case *g.Reached:
				reached++
			default:
				missed++
			}
		}
	}
	fmt.Fprintf(out, "\n%d goals reached, %d not, in %.0f seconds.\n", reached, missed, r.Seconds)
}

// publish draws and writes what is asked for; "" is not.
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

// write writes JSON to a file, and makes its directory. "" is no file.
func (r *report) write(name string) error {
	if name == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o644)
}

// failure is what went wrong in the drivers. That a goal was not reached is a result, and so is that another library
// failed.
func (r *report) failure() error {
	var failed []error
	for _, s := range r.Scenarios {
		for _, d := range s.Drivers {
			if d.Error != "" && !slices.Contains(peers, d.Name) && !slices.Contains(outside, d.Name) {
				failed = append(failed, fmt.Errorf("%s, %s: %s", s.Name, d.Name, d.Error))
			}
		}
	}
	return errors.Join(failed...)
}
