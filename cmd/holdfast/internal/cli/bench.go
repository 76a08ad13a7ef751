package cli

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cost"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

// maxCount bounds the memory and the load of holdfast bench.
const maxCount = 1_000_000

// benchFlags are the flags of holdfast bench.
type benchFlags struct {
	lookFlags
	count int
	time  time.Duration
}

func newBench(s streams) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure what a lock costs here",
		Long: `Bench measures what a lock costs on this backend, from this machine, and prints the
median, the 99th percentile and the longest time of each:
  round trip  one request that only reads: what holdfast inspect asks
  pair        a lock that is free is acquired and released
  handoff     from the release of a lock until another client that waits has it
The last column says how many round trips the median is worth. One thing is done at
a time, in turns, so this is no load test. It shows what holdfast adds to the network
and the server, and how steady these are. The first turn is not counted.

There are --count turns, but for no longer than --time, and at least one. They use
new keys, whose names begin with holdfast-bench/ and have a random part.
The keys are free when bench ends, also by a signal; if bench is killed or the
backend fails, they end within 10s. Meanwhile holdfast ls shows them. The user needs
the rights that locks need. --json prints a line for each, with times in
microseconds:
  {"what":"pair","times":1000,"p50_us":190.5,"p99_us":402.1,"max_us":911.7,
  "trips":2.1}

Exit codes:
  0      it was measured
  64     the command line is wrong, or the backend cannot show its locks
  69     the backend cannot be used, or has not answered within --timeout
  71     the system has no files, processes or memory left
  74     the output cannot be written
  128+N  signal N has ended it`,
		Example: `  holdfast bench --on redis://locks.example.com
  holdfast bench --json --count 100 --on redlock://h1,h2,h3`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("%d arguments, and there are none; write holdfast bench [flags]",
					len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			at, err := parseAddress(f.on, cmd.Flags().Changed("on"))
			if err != nil {
				return err
			}
			return f.bench(at, s)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.count, "count", 1000, "do each thing so often at most")
	flags.DurationVar(&f.time, "time", 5*time.Second, "measure for so long at most")
	flags.BoolVar(&f.json, "json", false, "print a line of JSON for each")
	return cmd
}

func (f *benchFlags) check() error {
	switch {
	case f.timeout <= 0:
		return usagef("--timeout %v: must be more than 0s", f.timeout)
	case f.count < 1 || f.count > maxCount:
		return usagef("--count %d: must be a number from 1 to %d", f.count, maxCount)
	case f.time <= 0:
		return usagef("--time %v: must be more than 0s", f.time)
	}
	return nil
}

// bench measures, and prints what it has measured.
func (f *benchFlags) bench(at address, s streams) error {
	signals, stop := child.Signals()
	defer stop()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	quit := cancelOnSignal(signals, cancel)
	defer quit()
	samples, err := f.measure(ctx, at, s)
	if signalled := signalled(ctx); signalled != nil {
		return signalled
	}
	if err != nil {
		return err
	}
	var text bytes.Buffer
	rows := [][]string{cost.Head}
	for _, sample := range samples {
		if f.json {
			text.Write(sample.JSON(samples[0]))
		}
		rows = append(rows, sample.Row(samples[0]))
	}
	if !f.json {
		text.WriteString(look.Table(rows))
	}
	if _, err := s.out.Write(text.Bytes()); err != nil {
		return &exit{codeOutput, err}
	}
	return nil
}

// measure opens the backend twice, as two processes would.
func (f *benchFlags) measure(ctx context.Context, at address, s streams) ([]cost.Sample, error) {
	at, name, err := addressOr(ctx, at, s, f.json)
	if err != nil {
		return nil, err
	}
	if err := at.CheckTTL(cost.TTL); err != nil {
		return nil, usagef("%sa lease of %v, as bench has: %w", name, cost.TTL, err)
	}
	var backends [2]driver.Backend
	for i := range backends {
		b, err := openWithin(ctx, name, f.timeout,
			func(ctx context.Context) (driver.Backend, error) { return at.Open(ctx, nil) })
		if err != nil {
			return nil, err
		}
		defer (&viewer{backend: b}).close()
		if _, ok := b.(driver.Inspector); !ok {
			return nil, usagef("%v: this backend cannot show what it knows of its locks", at)
		}
		backends[i] = b
	}
	samples, err := cost.Measure(ctx, backends, cost.Options{Prefix: at.Prefix(), Count: f.count,
		Time: f.time, Patience: f.timeout})
	v := viewer{name: name}
	if errors.Is(err, context.DeadlineExceeded) {
		err = &look.SilentError{Patience: f.timeout}
	}
	return samples, v.failure(err)
}
