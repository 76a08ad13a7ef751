// Command bench measures Holdfast on files, on one Redis server and over five, and on etcd,
// PostgreSQL and ZooKeeper. It compares Holdfast with the least that a lock can do, with other
// libraries for these systems, with flock, and with a token passed through a list. It starts all
// servers and processes itself, makes the drivers take turns, and prints medians, their spread,
// ratios and goals.
//
//	go run ./bench -quick
//	go run ./bench -json results.json -plots directory -markdown document.md
//	go run ./bench -from results.json -against earlier.json
//	go run ./bench -redis-only -run latency,contended -drivers holdfast,floor
//	go run ./bench -quick -before main -rounds 10
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

func main() {
	// This program starts itself as proxy and as worker.
	for variable, part := range map[string]func(string, io.Reader,
		io.Writer) error{proxyVariable: runProxy, workerVariable: runWorker} {
		if description := os.Getenv(variable); description != "" {
			if err := part(description, os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	goredis.SetLogger(silence{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// silence drops the log of go-redis: some scenarios stop servers on purpose.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// options are the flags of the command line.
type options struct {
	quick, smoke, redisOnly, list bool
	rounds                        int
	only, drivers                 string // lists separated by commas
	file, plots, document         string
	from, against, before, after  string
}

func parse(arguments []string, out io.Writer) (*options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&o.quick, "quick", false,
		"finish within five minutes, with fewer and shorter rounds")
	flags.BoolVar(&o.smoke, "smoke", false,
		"show only that everything runs; the numbers mean nothing")
	flags.BoolVar(&o.redisOnly, "redis-only", false,
		"leave out what needs more than Go and redis-server: "+strings.Join(outside, ", "))
	flags.BoolVar(&o.list, "list", false, "list scenarios and drivers")
	flags.IntVar(&o.rounds, "rounds", 0,
		"turns of each driver; default 1 with -smoke, 2 with -quick, else 3")
	flags.StringVar(&o.only, "run", "", "scenarios to run, separated by commas; default all")
	flags.StringVar(&o.drivers, "drivers", "",
		"drivers to measure, separated by commas; default all")
	flags.StringVar(&o.file, "json", "", "file to write the results to")
	flags.StringVar(&o.plots, "plots", "", "directory to draw plots into, as SVG")
	flags.StringVar(&o.document, "markdown", "",
		"document to write the tables to, between two marker lines; it links the plots of -plots")
	flags.StringVar(&o.from, "from", "",
		"measure nothing, and take the results from this file, which -json has written")
	flags.StringVar(&o.against, "against", "",
		"with -from, another file of results: print the drivers whose order differs")
	flags.StringVar(&o.before, "before", "",
		"earlier commit: build this program at it and at -after, and have the two take turns")
	flags.StringVar(&o.after, "after", "HEAD", "with -before, the later commit")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; bench takes only flags", flags.Arg(0))
	}
	return &o, nil
}

func (o *options) plan() plan {
	p := fullPlan
	switch {
	case o.smoke:
		p = smokePlan
	case o.quick:
		p = quickPlan
	}
	if o.rounds > 0 {
		p.rounds = o.rounds
	}
	return p
}

// planFlags returns the flags that choose the plan.
func (o *options) planFlags() []string {
	switch {
	case o.smoke:
		return []string{"-smoke"}
	case o.quick:
		return []string{"-quick"}
	}
	return nil
}

// scenarios returns the scenarios to run, with the drivers to measure. It fails for an unknown
// scenario, and if nothing is left to measure.
func (o *options) scenarios() ([]*scenario, error) {
	all := allScenarios(o.plan())
	wanted := func(list string, name string) bool {
		return list == "" || slices.Contains(strings.Split(list, ","), name)
	}
	for name := range strings.SplitSeq(o.only, ",") {
		if name != "" && !slices.ContainsFunc(all, func(s *scenario) bool {
			return s.name == name
		}) {
			return nil, fmt.Errorf("unknown scenario %q; see -list", name)
		}
	}
	all = slices.DeleteFunc(all, func(s *scenario) bool { return !wanted(o.only, s.name) })
	for _, s := range all {
		s.drivers = slices.DeleteFunc(slices.Clone(s.drivers), func(name string) bool {
			return !wanted(o.drivers, name) || o.redisOnly && slices.Contains(outside, name)
		})
	}
	all = slices.DeleteFunc(all, func(s *scenario) bool { return len(s.drivers) == 0 })
	if len(all) == 0 {
		return nil, fmt.Errorf("no scenario of %q has a driver of %q; see -list",
			cmp.Or(o.only, "all"), cmp.Or(o.drivers, "all"))
	}
	return all, nil
}

// run runs the command line, and writes the report to out.
func run(ctx context.Context, arguments []string, out io.Writer) error {
	o, err := parse(arguments, out)
	if err != nil {
		return err
	}
	switch {
	case o.from != "":
		return republish(o, out)
	case o.before != "":
		return compareCommits(ctx, o, out)
	}
	scenarios, err := o.scenarios()
	if err != nil {
		return err
	}
	if o.list {
		for _, s := range scenarios {
			fmt.Fprintf(out, "%-16s %s\n  %s\n", s.name, s.title, strings.Join(s.drivers, ", "))
		}
		return nil
	}
	return measure(ctx, o, scenarios, out)
}

// republish compares, draws and writes the results of an earlier run.
func republish(o *options, out io.Writer) error {
	r, err := readReport(o.from)
	if err != nil {
		return err
	}
	if o.against != "" {
		other, err := readReport(o.against)
		if err != nil {
			return err
		}
		r.compare(other, out)
	}
	return r.publish(o.plots, o.document)
}

// measure starts servers and runs the scenarios.
func measure(ctx context.Context, o *options, scenarios []*scenario, out io.Writer) error {
	var used []string
	for _, s := range scenarios {
		used = append(used, s.drivers...)
	}
	programs, err := versions(used)
	if err != nil {
		return err
	}
	p := o.plan()
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit,
		fmt.Errorf("the time limit of %v is over", p.limit))
	defer cancel()
	e := &env{plan: p, opened: make(map[string]*locker)}
	defer e.ends.run()
	if err := e.start(ctx, used); err != nil {
		return err
	}

	began := time.Now()
	r, err := newReport(e, programs)
	if err != nil {
		return err
	}
	fmt.Fprintf(out,
		"A %s run: %s.\nMedians of the rounds, their spread, and ratios, which are medians of the ratios round by round.\n",
		r.Plan, r.conditions())
	// If the file cannot be written, fail now and not after a quarter of an hour.
	if err := writeJSON(o.file, r); err != nil {
		return err
	}
	for _, s := range scenarios {
		if ctx.Err() != nil {
			break
		}
		r.add(s, s.measureAll(ctx, e))
		r.Scenarios[len(r.Scenarios)-1].print(out)
		r.Seconds = time.Since(began).Seconds()
		// After each scenario, so that no result is lost when the program ends early.
		if err := writeJSON(o.file, r); err != nil {
			return err
		}
	}
	r.tail(out)
	if err := r.publish(o.plots, o.document); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("not complete: %w", context.Cause(ctx))
	}
	return r.failure()
}
