//go:build unix

// Command torture runs the fault laboratory in all its modes, for as long as one likes, and writes
// a report.
//
//	go run ./itest/torture -duration 30m [-parallel 4] [-seed 7] [-report docs] [-modes TLS]
//	go run ./itest/torture -recheck docs/torture-1.jsonl.gz
//	go run ./itest/torture -recheck docs -duration 30m -parallel 4 -seed 7 -commit abcdef0
//
// Beside the report it keeps what was recorded, and it can check that again, after a check was
// mended: one run, or all of a report, which is then written anew. It ends with 1 if a promise was
// not kept. Ctrl-C stops it, and everything that it has started.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/report"
)

func main() {
	duration := flag.Duration("duration", 30*time.Minute,
		"how long faults go on, in all modes together")
	parallel := flag.Int("parallel", 1, "how many modes run at once")
	seed := flag.Uint64("seed", 0, "what the nemesis draws from; 0 for a new one")
	modes := flag.String("modes", "",
		"regular expression for the names of modes, as they are printed; all if empty")
	dir := flag.String("report", "", "directory for the report; none if empty")
	again := flag.String("recheck", "", "file of a run to check again, or directory of a report to "+
		"check again and to write anew, with the flags it was made with; nothing is run")
	commit := flag.String("commit", "", "of a report that is checked again: what was run")
	flag.Parse()
	if info, err := os.Stat(*again); *again != "" && (err != nil || !info.IsDir()) {
		if err := recheck(*again); err != nil {
			fmt.Fprintln(os.Stderr, "torture:", err)
			os.Exit(1)
		}
		return
	}
	if *parallel < 1 {
		fmt.Fprintf(os.Stderr, "torture: -parallel %d: it has to be at least 1\n", *parallel)
		os.Exit(2)
	}
	wanted, err := regexp.Compile(*modes)
	if err != nil {
		fmt.Fprintf(os.Stderr, "torture: -modes: %v\n", err)
		os.Exit(2)
	}
	planned := plan(*duration, wanted)
	if len(planned) == 0 {
		fmt.Fprintf(os.Stderr, "torture: -modes %s: no mode has such a name\n", *modes)
		os.Exit(2)
	}
	env := report.Environment{Duration: *duration, Parallel: *parallel, Seed: *seed, Modes: *modes,
		Commit: *commit}
	if *again != "" {
		if *commit == "" || *seed == 0 {
			fmt.Fprintln(os.Stderr, "torture: -recheck of a report needs its -commit and its -seed")
			os.Exit(2)
		}
		if err := judgeAgain(planned, env, *again); err != nil {
			fmt.Fprintln(os.Stderr, "torture:", err)
			os.Exit(1)
		}
		return
	}
	if *seed == 0 {
		*seed = rand.Uint64() >> 32 // short to type
		env.Seed = *seed
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := torture(ctx, planned, env, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

// recheck checks again what was recorded of a run.
func recheck(file string) error {
	run, err := history.Read(file)
	if err != nil {
		return err
	}
	found := check.Recorded(run)
	for _, f := range found {
		fmt.Println(f)
	}
	violations := len(check.Violations(found))
	fmt.Printf("%s: %d acquisitions asked, %d findings with an excuse, %d violations\n",
		run.Setup.Name, len(run.Acquisitions), len(found)-violations, violations)
	if violations > 0 {
		return fmt.Errorf("%d violations", violations)
	}
	return nil
}
