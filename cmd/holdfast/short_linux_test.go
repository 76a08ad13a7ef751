package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkShortJobs starts a hundred jobs at once that exclude each other, under holdfast and
// under flock of util-linux in turns. A job that does nothing costs mostly the start of a process.
// So it also measures a hundred starts of holdfast without a lock, and of a Go program that does
// nothing, the least that a Go program can cost.
//
// It reports ratios to flock per round: the median, the least and the greatest. Ratios of processor
// time hold on a busy machine too: x-flock-cpu is holdfast's, and bare-x-flock-cpu is the empty
// program's.
func BenchmarkShortJobs(b *testing.B) {
	flock, err := exec.LookPath("flock")
	if err != nil {
		b.Fatalf("flock of util-linux is missing: %v", err)
	}
	bare := buildBare(b)
	for _, job := range [][]string{{"true"}, {"sleep", "0.05"}} {
		b.Run(job[0], func(b *testing.B) {
			var theirs, ours, starts, bares []cost
			for range b.N {
				dir := b.TempDir()
				run := []string{holdfastPath, "run", "--quiet",
					"--on=file://" + filepath.Join(dir, "locks"), "name", "--"}
				theirs = append(theirs,
					hundred(b, append([]string{flock, filepath.Join(dir, "file")}, job...)))
				ours = append(ours, hundred(b, append(run, job...)))
				starts = append(starts, hundred(b, []string{holdfastPath, "version"}))
				bares = append(bares, hundred(b, []string{bare}))
			}
			report(b, "", ours, theirs)
			report(b, "start-", starts, theirs)
			report(b, "bare-", bares, theirs)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// report reports costs as ratios to flock's.
func report(b *testing.B, name string, costs, theirs []cost) {
	var walls, cpus []float64
	for i, c := range costs {
		walls = append(walls, c.wall.Seconds()/theirs[i].wall.Seconds())
		cpus = append(cpus, c.cpu.Seconds()/theirs[i].cpu.Seconds())
	}
	slices.Sort(walls)
	slices.Sort(cpus)
	b.ReportMetric(walls[len(walls)/2], name+"x-flock")
	b.ReportMetric(walls[0], name+"x-flock-least")
	b.ReportMetric(walls[len(walls)-1], name+"x-flock-greatest")
	b.ReportMetric(cpus[len(cpus)/2], name+"x-flock-cpu")
}

// buildBare builds a program that does nothing.
func buildBare(b *testing.B) (path string) {
	b.Helper()
	dir := b.TempDir()
	source := filepath.Join(dir, "bare.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	path = filepath.Join(dir, "bare")
	if out, err := exec.Command("go", "build", "-o", path, source).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return path
}

// cost is what a hundred commands take: the time until all have ended, and the processor time, with
// that of the children that they have reaped.
type cost struct{ wall, cpu time.Duration }

// hundred starts a command a hundred times at once.
func hundred(b *testing.B, args []string) cost {
	b.Helper()
	ended := make(chan error)
	var cpu atomic.Int64
	begin := time.Now()
	for range 100 {
		go func() {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Stderr = os.Stderr
			err := cmd.Run()
			if err != nil {
				err = fmt.Errorf("%v: %w", args, err)
			} else {
				cpu.Add(int64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()))
			}
			ended <- err
		}()
	}
	for range 100 {
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
	return cost{time.Since(begin), time.Duration(cpu.Load())}
}
