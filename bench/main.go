// Command bench measures Holdfast, on one Redis server and over five, side by side with the least that a lock can do, with other
// libraries for Redis, with etcd and PostgreSQL, and with a token passed through a list. It starts the servers and all other
// processes by itself, has the drivers take turns, and prints medians, their spread, ratios, and goals.
//
//	go run ./bench -quick
//	go run ./bench -json results.json -plots directory -markdown document.md
//	go run ./bench -from results.json -against earlier.json
//	go run ./bench -redis-only -run latency,contended -drivers holdfast,floor -profile directory
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

func main() {
	if target := os.Getenv(proxyVariable); target != "" {
		if err := runProxy(target, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if description := os.Getenv(workerVariable); description != "" {
		if err := runWorker(description, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
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

// silence is go-redis's logger: servers that are gone are what is measured.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// run is the program. It writes its report to out.
func run(ctx context.Context, arguments []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	quick := flags.Bool("quick", false, "finish within two minutes, with fewer and shorter rounds")
	smoke := flags.Bool("smoke", false, "only show that everything runs, with counts too small to mean anything")
	redisOnly := flags.Bool("redis-only", false, "leave out what needs more than Go and redis-server: "+strings.Join(outside, ", "))
	only := flags.String("run", "", "scenarios to run, separated by commas; default all")
	drivers := flags.String("drivers", "", "drivers to measure, separated by commas; default all")
	file := flags.String("json", "", "file to write the results to")
	plots := flags.String("plots", "", "directory to draw plots into, as SVG")
	document := flags.String("markdown", "", "document to write the tables into, between two lines that it marks, with the plots in the directory of -plots")
	from := flags.String("from", "", "measure nothing, but take the results from this file, which -json has written")
	against := flags.String("against", "", "with -from, another file of results: tell whose order differs between the two runs")
	profile := flags.String("profile", "", "directory for profiles of the processor time, of this process and of workers")
	rounds := flags.Int("rounds", 0, "how often each driver has its turn; default 2 with -quick, else 3")
	list := flags.Bool("list", false, "list scenarios and drivers")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: there are only flags", flags.Arg(0))
	}
	if *from != "" {
		r, err := readReport(*from)
		if err != nil {
			return err
		}
		if *against != "" {
			other, err := readReport(*against)
			if err != nil {
				return err
			}
			r.compare(other, out)
		}
		return r.publish(*plots, *document)
	}
	p := fullPlan
	switch {
	case *smoke:
		p = smokePlan
	case *quick:
		p = quickPlan
	}
	if *rounds > 0 {
		p.rounds = *rounds
	}
	scenarios := allScenarios(p)
	if *list {
		for _, s := range scenarios {
			fmt.Fprintf(out, "%-16s %s\n  %s\n", s.name, s.title, strings.Join(s.drivers, ", "))
		}
		return nil
	}
	if *only != "" {
		names := strings.Split(*only, ",")
		for _, name := range names {
			if !slices.ContainsFunc(scenarios, func(s *scenario) bool { return s.name == name }) {
				return fmt.Errorf("scenario %q: there is none of that name, see -list", name)
			}
		}
		scenarios = slices.DeleteFunc(scenarios, func(s *scenario) bool { return !slices.Contains(names, s.name) })
	}

	var used []string
	for _, s := range scenarios {
		s.drivers = chosen(s.drivers, *drivers)
		if *redisOnly {
			s.drivers = slices.DeleteFunc(slices.Clone(s.drivers), func(name string) bool { return slices.Contains(outside, name) })
		}
		used = append(used, s.drivers...)
	}
	if err := missing(used); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, fmt.Errorf("the time allowed, %v, is over", p.limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "holdfast-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	e := &env{plan: p, dir: dir, opened: make(map[string]locker)}
	if *profile != "" {
		if err := os.MkdirAll(*profile, 0o755); err != nil {
			return err
		}
		if e.profile, err = filepath.Abs(*profile); err != nil {
			return err
		}
		f, err := os.Create(filepath.Join(e.profile, "bench.pprof"))
		if err != nil {
			return err
		}
		defer f.Close()
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	common, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer common.stop()
	e.common = []*server{common}
	stopOutside, err := e.startOutside(ctx, used)
	if err != nil {
		return err
	}
	defer stopOutside()

	began := time.Now()
	r, err := newReport(e, p, used)
	if err != nil {
		return err
	}
	r.head(out)
	// A file that can not be written is better known now than in a quarter of an hour.
	if err := r.write(*file); err != nil {
		return err
	}
	for _, s := range scenarios {
		if len(s.drivers) == 0 || ctx.Err() != nil {
			continue
		}
		results := s.measureAll(ctx, e)
		r.add(s, results)
		r.Scenarios[len(r.Scenarios)-1].print(out)
		r.Seconds = time.Since(began).Seconds()
		// After each scenario: whatever ends the program, what it has measured is not lost.
		if err := r.write(*file); err != nil {
			return err
		}
	}
	r.tail(out)
	if err := r.publish(*plots, *document); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("not complete: %w", context.Cause(ctx))
	}
	return r.failure()
}
