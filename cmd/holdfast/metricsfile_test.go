//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver/prometheustest"
)

// runMetrics reads a file that --metrics-file has left, after promtool has checked it.
func runMetrics(t *testing.T, path string) map[string]float64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	promtool, err := prometheustest.Promtool()
	if err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(string(text))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v: %s\n%s", err, out, text)
	}
	values := make(map[string]float64)
	line := regexp.MustCompile(`(?m)^holdfast_run_(\w+)\{locks="na\\"me"\} (\S+)$`)
	for _, match := range line.FindAllStringSubmatch(string(text), -1) {
		if values[match[1]], err = strconv.ParseFloat(match[2], 64); err != nil {
			t.Error(err)
		}
	}
	if len(values) != 6 {
		t.Errorf("%d metrics, want 6:\n%s", len(values), text)
	}
	return values
}

func TestMetricsFile(t *testing.T) {
	dir, metrics := locks(t), t.TempDir()
	path := filepath.Join(metrics, "run.prom")
	run := func(code int, flags ...string) map[string]float64 {
		t.Helper()
		p := start(t, dir, nil, append([]string{"run", "--metrics-file", path}, flags...)...)
		p.expectExit(code)
		return runMetrics(t, path)
	}
	want := func(got map[string]float64, code, acquired, lost float64) {
		t.Helper()
		if got["exit_code"] != code || got["acquired"] != acquired || got["lost"] != lost {
			t.Errorf("%v, want exit code %v, acquired %v, lost %v", got, code, acquired, lost)
		}
		if held := got["hold_seconds"] > 0; held != (acquired == 1) {
			t.Errorf("held for %v s, and acquired is %v", got["hold_seconds"], acquired)
		}
		if got["end_timestamp_seconds"] < 1e9 {
			t.Errorf("ended at %v", got["end_timestamp_seconds"])
		}
	}

	want(run(3, `na"me`, "--", "sh", "-c", "exit 3"), 3, 1, 0)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	want(run(0, `na"me`, "--", "true"), 0, 1, 0)
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if os.SameFile(before, after) {
		t.Error("the file was written in place: a reader may see half of it")
	}
	if after.Mode().Perm() != 0o644 {
		t.Errorf("the file has mode %v, so not everybody can read it", after.Mode())
	}
	want(run(70, "--ttl=200ms", "--max-hold=200ms", `na"me`, "--", "sleep", "60"), 70, 1, 1)

	holder := start(t, dir, nil, "run", `na"me`, "--", "sh", "-c", "echo ready; read x")
	holder.expect("ready")
	want(run(75, "--no-wait", `na"me`, "--", "true"), 75, 0, 0)
	holder.stdin.Close()
	holder.ends()

	// What fails before a lock is asked for is a run, too.
	want(run(127, `na"me`, "--", "/nonexistent"), 127, 0, 0)
	want(run(0, `na"me`, "--", "true"), 0, 1, 0)
	want(run(126, `na"me`, "--", "/etc/passwd"), 126, 0, 0)
	want(run(64, "--on=nonsense", `na"me`, "--", "true"), 64, 0, 0)
	want(run(64, "--ttl=1ns", `na"me`, "--", "true"), 64, 0, 0)

	left, err := os.ReadDir(metrics)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 {
		t.Errorf("files were left behind: %v", left)
	}
}

func TestMetricsFileThatCannotBeWritten(t *testing.T) {
	dir, metrics := locks(t), t.TempDir()
	folder := filepath.Join(metrics, "folder.prom")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(metrics, "missing", "run.prom"), folder} {
		p := start(t, dir, nil, "run", "--metrics-file", path, "name", "--", "sh", "-c", "exit 3")
		p.expectExit(3)
		if got := p.allStderr(); !strings.HasPrefix(got, "holdfast: --metrics-file: ") {
			t.Errorf("it says %q", got)
		}
	}
	left, err := os.ReadDir(metrics)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 {
		t.Errorf("files were left behind: %v", left)
	}
}

func TestMetricsFileOfAnotherName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.txt")
	p := start(t, locks(t), nil, "run", "--metrics-file", path, "name", "--", "true")
	p.expectExit(64)
	want := fmt.Sprintf("holdfast: --metrics-file %q: node_exporter reads files whose names end "+
		"with .prom", path)
	if got := p.allStderr(); !strings.HasPrefix(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
}
