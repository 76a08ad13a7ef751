package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// maxLoss is the part by which a change may make a scenario worse.
const maxLoss = 0.03

// Drivers and metrics by which commits are compared. Both commits have the same code of the floors,
// so a ratio of theirs other than 1 is noise.
var (
	changing = []string{ours, oursAlone, oursGoRedis, oursRedis, oursShared, oursSet,
		oursPermits}
	unchanged = []string{floor, floorSet, blpop, bare, roundTrip}
	telling   = []string{"pairs", "locks", "allocs"} // in addition to the first of each scenario
)

// comparison is one metric of one driver at two commits, in the order of rounds.
type comparison struct {
	Scenario string    `json:"scenario"`
	Driver   string    `json:"driver"`
	Metric   metric    `json:"metric"`
	Before   []float64 `json:"before"`
	After    []float64 `json:"after"`
}

// ratios returns the ratios of after to before, round by round.
func (c *comparison) ratios() []float64 { return stats.Ratios(c.After, c.Before) }

// loss returns the part by which after is worse; it is negative if after is better.
func (c *comparison) loss() float64 {
	return (1 - stats.Median(c.ratios())) * float64(c.Metric.Better)
}

// compareCommits builds this program at two commits, and makes the two take turns at each scenario.
// It fails if a scenario has become worse by more than maxLoss.
func compareCommits(ctx context.Context, o *options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "holdfast-bench-commits")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	before, after, err := buildBoth(ctx, dir, o, out)
	if err != nil {
		return err
	}
	names, err := commonScenarios(ctx, before, after, o)
	if err != nil {
		return err
	}
	drivers := o.drivers
	if drivers == "" {
		drivers = strings.Join(slices.Concat(changing, unchanged), ",")
	}
	t := &turns{ctx: ctx, o: o, drivers: drivers, dir: dir}
	rounds := o.plan().rounds
	for round := range rounds {
		for _, name := range names {
			t.take(name, before, after, round%2 == 1)
		}
		fmt.Fprintf(out, "round %d of %d is done\n", round+1, rounds)
	}
	printComparisons(out, t.rows)
	if err := writeJSON(o.file, t.rows); err != nil {
		return err
	}
	return errors.Join(append(t.failed, context.Cause(ctx), losses(t.rows))...)
}

// turns are the results of two commits so far.
type turns struct {
	ctx     context.Context
	o       *options
	drivers string
	dir     string
	rows    []*comparison
	failed  []error
}

// take makes both commits measure a scenario, the later one first if swapped.
func (t *turns) take(scenario, before, after string, swapped bool) {
	if t.ctx.Err() != nil {
		return
	}
	programs := []string{before, after}
	if swapped {
		slices.Reverse(programs)
	}
	both := make(map[string]*scenarioReport)
	for _, program := range programs {
		r, err := t.measure(program, scenario)
		if err != nil {
			t.failed = append(t.failed, fmt.Errorf("%s: %w", scenario, err))
		}
		both[program] = r
	}
	t.pairUp(both[before], both[after])
}

// buildBoth builds the program at both commits: the benchmark of the later commit on the library of
// each. If that does not build on the earlier library, the earlier commit gets its own benchmark.
func buildBoth(ctx context.Context, dir string, o *options,
	out io.Writer) (before, after string, err error) {
	old, recent := filepath.Join(dir, "before"), filepath.Join(dir, "after")
	if err := errors.Join(checkOut(ctx, o.before, old),
		checkOut(ctx, o.after, recent)); err != nil {
		return "", "", err
	}
	if after, err = buildAt(ctx, recent); err != nil {
		return "", "", err
	}
	own := filepath.Join(old, "bench")
	if err := os.Rename(own, filepath.Join(dir, "own")); err != nil {
		return "", "", err
	}
	if err := os.CopyFS(own, os.DirFS(filepath.Join(recent, "bench"))); err != nil {
		return "", "", err
	}
	before, reason := buildAt(ctx, old)
	if reason == nil {
		fmt.Fprintf(out, "%s and %s are measured by the same benchmark, that of %s.\n", o.before,
			o.after, o.after)
		return before, after, nil
	}
	if ctx.Err() != nil {
		return "", "", context.Cause(ctx)
	}
	fmt.Fprintf(out,
		"%s and %s are measured by a benchmark each, their own, since that of %s does not build on %s: %v\n",
		o.before, o.after, o.after, o.before, reason)
	if err := errors.Join(os.RemoveAll(own),
		os.Rename(filepath.Join(dir, "own"), own)); err != nil {
		return "", "", err
	}
	before, err = buildAt(ctx, old)
	return before, after, err
}

// checkOut writes the files of a commit to a new directory. It does not change the checkout.
func checkOut(ctx context.Context, commit, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	top, err := output(exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel"))
	if err != nil {
		return err
	}
	archive := exec.CommandContext(ctx, "git", "-C", strings.TrimSpace(string(top)), "archive",
		"--format=tar", commit)
	files, err := output(archive)
	if err != nil {
		return fmt.Errorf("commit %q: %w", commit, err)
	}
	extract := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	extract.Stdin = bytes.NewReader(files)
	_, err = output(extract)
	return err
}

func buildAt(ctx context.Context, tree string) (program string, err error) {
	program = filepath.Join(tree, "built", "bench")
	// env.command looks for the command beside the program.
	arguments := []string{"build", "-buildvcs=false", "-o", filepath.Dir(program) +
		string(filepath.Separator), "./bench"}
	if _, err := os.Stat(filepath.Join(tree, "cmd", "holdfast")); err == nil {
		arguments = append(arguments, "./cmd/holdfast")
	}
	build := exec.CommandContext(ctx, "go", arguments...)
	build.Dir = tree
	// The environment may name the go.work of another tree.
	build.Env = append(os.Environ(), "GOWORK="+filepath.Join(tree, "go.work"))
	_, err = output(build)
	return program, err
}

// output returns the stdout of the command. An error has its stderr.
func output(cmd *exec.Cmd) ([]byte, error) {
	var complaint strings.Builder
	cmd.Stderr = &complaint
	data, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err,
			strings.TrimSpace(complaint.String()))
	}
	return data, err
}

// commonScenarios returns the names of the selected scenarios that both programs have.
func commonScenarios(ctx context.Context, before, after string,
	o *options) (names []string, err error) {
	lists := make([][]string, 2)
	for i, program := range []string{before, after} {
		list, err := output(exec.CommandContext(ctx, program, append(o.planFlags(), "-list")...))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(list)) {
			// Lines of drivers are indented.
			if name, _, ok := strings.Cut(line, " "); ok && name != "" {
				lists[i] = append(lists[i], name)
			}
		}
	}
	for _, name := range lists[1] {
		if slices.Contains(lists[0], name) &&
			(o.only == "" || slices.Contains(strings.Split(o.only, ","), name)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("scenarios %q: none of these is at both commits; at %s there are %v",
			o.only, o.before, lists[0])
	}
	return names, nil
}

// measure makes the program measure one round of one scenario. It returns nil if the scenario has
// none of the drivers.
func (t *turns) measure(program, scenario string) (*scenarioReport, error) {
	file := filepath.Join(t.dir, "round.json")
	cmd := exec.CommandContext(t.ctx, program, append(t.o.planFlags(), "-redis-only", "-rounds",
		"1", "-run", scenario, "-drivers", t.drivers, "-json", file)...)
	// Interrupt it, do not kill it: it has to stop its servers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if _, err := output(cmd); err != nil {
		return nil, err
	}
	r, err := readReport(file)
	if err != nil {
		return nil, err
	}
	return r.scenario(scenario), nil
}

// pairUp adds one round of a scenario to the rows. It drops what only one commit has measured.
func (t *turns) pairUp(before, after *scenarioReport) {
	if before == nil || after == nil {
		return
	}
	for _, d := range after.Drivers {
		for i, m := range after.Metrics {
			old, recent := before.value(d.Name, m.Name), d.Metrics[m.Name]
			if old != nil && recent != nil && (i == 0 || slices.Contains(telling, m.Name)) {
				c := t.row(after.Name, d.Name, m)
				c.Before, c.After = append(c.Before, old.Median), append(c.After, recent.Median)
			}
		}
	}
}

// row returns the row of a metric, and adds it if it is missing.
func (t *turns) row(scenario, driver string, m metric) *comparison {
	for _, c := range t.rows {
		if c.Scenario == scenario && c.Driver == driver && c.Metric.Name == m.Name {
			return c
		}
	}
	c := &comparison{Scenario: scenario, Driver: driver, Metric: m}
	t.rows = append(t.rows, c)
	return c
}

func printComparisons(out io.Writer, rows []*comparison) {
	fmt.Fprintf(out,
		"\nRatios are after/before round by round: their median, least and greatest. The loss is the part by which after is worse.\n"+
			"%s are the same code at both commits: a ratio of theirs other than 1 is noise.\n\n", strings.Join(unchanged, ", "))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tdriver\tmetric\tbefore\tafter\tratio\tleast\tgreatest\tloss")
	for _, c := range rows {
		ratios := c.ratios()
		if len(ratios) == 0 {
			continue
		}
		value := func(v float64) string {
			return strconv.FormatFloat(v, 'f', c.Metric.Decimals, 64)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.3f\t%.3f\t%.3f\t%+.1f %%\n", c.Scenario, c.Driver,
			strings.TrimSpace(c.Metric.Name+" "+c.Metric.Unit),
			value(stats.Median(c.Before)), value(stats.Median(c.After)), stats.Median(ratios),
			slices.Min(ratios), slices.Max(ratios), c.loss()*100)
	}
	w.Flush()
}

// losses returns an error that names what has become worse by more than maxLoss.
func losses(rows []*comparison) error {
	var all []error
	for _, c := range rows {
		if loss := c.loss(); slices.Contains(changing, c.Driver) && !math.IsNaN(loss) &&
			loss > maxLoss {
			all = append(all, fmt.Errorf("%s, %s: %s is worse by %.1f %%, more than %.0f %%",
				c.Scenario, c.Driver, c.Metric.Name, loss*100, maxLoss*100))
		}
	}
	return errors.Join(all...)
}

// writeJSON writes a value to a file, and makes its directory. It does nothing if name is "".
func writeJSON(name string, value any) error {
	if name == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o644)
}
