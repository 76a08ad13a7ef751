package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/wholefile"
)

// record is what --metrics-file says of one run. A run that waits for a lock or a command lives too
// shortly to be scraped, so it leaves a file for the textfile collector of node_exporter.
type record struct {
	begin    time.Time
	acquired time.Time // zero: not
	lost     bool      // a lock was lost while the command ran
}

// metricsSuffix is the ending of names of files that node_exporter reads.
const metricsSuffix = ".prom"

func addMetricsFile(flags *pflag.FlagSet, f *runFlags) {
	flags.StringVar(&f.metrics, "metrics-file", "",
		"write metrics of the run to `FILE.prom`, for node_exporter")
}

// checkMetricsFile wants a name that node_exporter reads. Otherwise nobody would notice that it
// reads nothing.
func (f *runFlags) checkMetricsFile(given func(flag string) bool) error {
	if given("metrics-file") && !strings.HasSuffix(f.metrics, metricsSuffix) {
		return usagef("--metrics-file %q: node_exporter reads files whose names end with %s",
			f.metrics, metricsSuffix)
	}
	return nil
}

// recorded calls run, writes the file, and returns the error of run. If the file cannot be written,
// the exit code stays the same, because the work was done.
func recorded(s streams, path string, names []string, run func(*record) error) error {
	r := record{begin: time.Now()}
	err := run(&r)
	if path == "" {
		return err
	}
	text := r.text(names, exitCode(err), time.Now())
	// Everybody may read it, because the collector runs as another user.
	if failure := wholefile.Write(path, 0o644, []byte(text)); failure != nil {
		write(context.Background(), s.err, message(fmt.Sprintf("--metrics-file: %v", failure)))
	}
	return err
}

// text is the file in Prometheus' text format.
func (r *record) text(names []string, code int, end time.Time) string {
	wait, hold := end.Sub(r.begin), time.Duration(0)
	if !r.acquired.IsZero() {
		wait, hold = r.acquired.Sub(r.begin), end.Sub(r.acquired)
	}
	label := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(
		strings.ToValidUTF8(strings.Join(names, " "), "\uFFFD"))
	var b strings.Builder
	for _, m := range []struct {
		name, help string
		value      float64
	}{
		{"exit_code", "Exit code of the last holdfast run.", float64(code)},
		{"end_timestamp_seconds", "When the last holdfast run ended.",
			float64(end.UnixMilli()) / 1000},
		{"acquired", "Whether the last holdfast run got its locks.", oneIf(!r.acquired.IsZero())},
		{"lost", "Whether the last holdfast run lost a lock.", oneIf(r.lost)},
		{"wait_seconds", "How long the last holdfast run waited for its locks.", wait.Seconds()},
		{"hold_seconds", "How long the last holdfast run held its locks.", hold.Seconds()},
	} {
		fmt.Fprintf(&b, "# HELP holdfast_run_%[1]s %[2]s\n# TYPE holdfast_run_%[1]s gauge\n"+
			"holdfast_run_%[1]s{locks=\"%[3]s\"} %[4]s\n", m.name, m.help, label,
			strconv.FormatFloat(m.value, 'f', -1, 64))
	}
	return b.String()
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
