// Command torture runs the fault laboratory in all its modes, for as long as one likes, and writes a report.
//
//	go run ./itest/torture -duration 30m [-seed 7] [-report docs]
//
// It ends with 1 if a promise was not kept. Ctrl-C stops it, and everything that it has started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/lab"
	"github.com/holdfast-go/holdfast/itest/mutants"
	"github.com/holdfast-go/holdfast/itest/report"
)

func main() {
	duration := flag.Duration("duration", 30*time.Minute, "how long faults go on, in all modes together")
	seed := flag.Uint64("seed", 0, "what the nemesis draws from; 0 for a new one")
	dir := flag.String("report", "", "directory for the report; none if empty")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64() >> 32 // short to type
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := torture(ctx, *duration, *seed, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

func torture(ctx context.Context, duration time.Duration, seed uint64, dir string) error {
	work, err := os.MkdirTemp("", "torture")
	if err != nil {
		return err
	}
	plain, err := lab.Build(ctx, work, "")
	if err != nil {
		return err
	}
	skewed, err := buildSkewed(ctx, work)
	if err != nil {
		return err
	}
	env := environment(seed, duration)
	var runs []report.Run
	violations := 0
	for i, config := range plan(duration) {
		config.Program, config.Seed = plain, seed+uint64(i)
		if config.Skew > 0 {
			config.Program = skewed
		}
		config.Dir = filepath.Join(work, fmt.Sprint(i+1))
		if err := os.Mkdir(config.Dir, 0o755); err != nil {
			return err
		}
		fmt.Printf("%s, %s, limits %v: %v with seed %d\n", config.Mode(), config.Persistence, config.Limits, config.Duration.Round(time.Second), config.Seed)
		result, err := lab.Run(ctx, config)
		if err != nil {
			return fmt.Errorf("%w; what was recorded is in %s", err, work)
		}
		found := check.All(result.History, check.Rules{TTL: result.Config.TTL, Guard: result.Config.Guard, Calm: result.History.Mark(lab.Calm)})
		runs = append(runs, report.Run{Result: result, Found: found})
		fmt.Println(report.Count(result, found))
		for _, f := range check.Violations(found) {
			violations++
			fmt.Println("VIOLATION:", f)
		}
		// After each run: what was seen so far is not to be lost with what comes.
		if dir != "" {
			if err := report.Write(dir, env, runs); err != nil {
				return err
			}
		}
	}
	if violations > 0 {
		return fmt.Errorf("%d violations; what was recorded is in %s", violations, work)
	}
	return errors.Join(os.RemoveAll(work))
}

// buildSkewed builds the client program whose wall clock is off.
func buildSkewed(ctx context.Context, dir string) (program string, err error) {
	dir = filepath.Join(dir, mutants.Skewed)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	overlay, err := mutants.Overlay(dir, mutants.Skewed)
	if err != nil {
		return "", err
	}
	return lab.Build(ctx, dir, overlay)
}

// plan divides the time: two thirds for the promises, one for the limits.
func plan(duration time.Duration) (runs []lab.Config) {
	for _, part := range []struct {
		configs []lab.Config
		time    time.Duration
	}{{lab.Promises, duration * 2 / 3}, {lab.Limits, duration / 3}} {
		for _, c := range part.configs {
			c.Duration = part.time / time.Duration(len(part.configs))
			runs = append(runs, c)
		}
	}
	return runs
}

func environment(seed uint64, duration time.Duration) report.Environment {
	says := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	redis := "Redis"
	for word := range strings.FieldsSeq(says("redis-server", "--version")) {
		if version, ok := strings.CutPrefix(word, "v="); ok {
			redis += " " + version
		}
	}
	return report.Environment{
		Commit: says("git", "-c", "safe.directory=*", "rev-parse", "--short", "HEAD"),
		Redis:  redis, Go: runtime.Version(), Cores: runtime.NumCPU(),
		Seed: seed, Duration: duration, Date: time.Now().Format("2 January 2006"),
	}
}
