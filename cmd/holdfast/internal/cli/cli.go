// Package cli is the command line of holdfast: one file for each command.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// streams are what a command of holdfast writes to. The program that holdfast run starts gets the
// streams of the process instead.
type streams struct {
	out, err io.Writer
}

// Main runs a command line and returns the exit code. args do not include the program's name. Main
// writes results to out and errors to err. It does not end the process, except that it may replace
// it by another program, which has the client for an address.
func Main(args []string, out, err io.Writer) int {
	output := &checkedWriter{Writer: out}
	out = output
	s := streams{out, err}
	root := newRoot(s)
	root.SetArgs(append([]string{}, args...)) // cobra reads os.Args if args are nil
	root.SetOut(out)
	root.SetErr(err)
	command, failure := root, checkCaller()
	takeHanded(args)
	if failure == nil {
		command, failure = execute(root, args)
	}
	if err := output.failure(); err != nil {
		failure = &exit{codeOutput, fmt.Errorf("cannot write what was asked for: %w", err)}
	}
	code := exitCode(failure)
	if failure == nil {
		return 0
	}
	text := failure.Error()
	var names []string
	if e, ok := failure.(*exit); !ok {
		// The error repeats the command line, which may have an address that was not parsed.
		text = withoutAddresses(text)
	} else if e.err == nil {
		return code
	} else {
		names = command.Flags().Args()
	}
	if code == codeUsage {
		text = strings.TrimRight(text, "\n") + "; see '" + command.CommandPath() + " --help'"
	}
	ignoreBrokenPipe() // the exit code counts even if nobody reads the message
	io.WriteString(err, message(text, names...))
	return code
}

// execute runs the command line. It refuses words after a command that has nothing to run: cobra
// would ignore them and show the help.
func execute(root *cobra.Command, args []string) (*cobra.Command, error) {
	root.InitDefaultCompletionCmd(args...)
	if topic, rest, err := root.Find(args); err == nil && topic != root && !topic.Runnable() {
		for _, arg := range rest {
			if !strings.HasPrefix(arg, "-") {
				return topic, usagef("no command %q in %s", shown([]string{arg}),
					topic.CommandPath())
			}
		}
	}
	return root.ExecuteC()
}

// checkedWriter remembers the first error of Write, because cobra ignores errors when it writes
// help. failure may be called during a Write.
type checkedWriter struct {
	io.Writer
	err atomic.Pointer[error]
}

func (w *checkedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		w.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (w *checkedWriter) failure() error {
	if err := w.err.Load(); err != nil {
		return *err
	}
	return nil
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Put a lock around a program",
		Long: `Holdfast puts a lock around a program, so that of all the machines, cron jobs
and deploy scripts that start it only one runs it at a time.`,
		Example:           `  holdfast run nightly -- /usr/local/bin/backup --full`,
		Version:           version(),
		SilenceErrors:     true, // Main reports errors
		SilenceUsage:      true,
		DisableAutoGenTag: true, // pages of one version are equal, whenever they are built
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		newRun(s),
		newHold(s),
		newLead(s),
		newLs(s),
		newWatch(s),
		newBoard(s),
		newInspect(s),
		newDoctor(s),
		newRelease(s),
		newLeaks(s),
		newDeadlocks(s),
		newBench(s),
		newAdopt(s),
		newFence(s),
		newVersion(s),
		newMan(s),
		newAddresses(),
		newStores(),
	)
	root.SetHelpCommand(newHelp())
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	return root
}

// flagError says which values a flag takes. The library only says how parsing failed.
func flagError(_ *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if errors.As(err, &missing) && missing.GetSpecifiedShortnames() != "" {
		// Do not show the rest: in -on=ADDRESS it is an address, meant for --on.
		return fmt.Errorf("unknown shorthand flag: '%s'", missing.GetSpecifiedName())
	}
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return err
	}
	allowed := "true or false"
	switch wrong.GetFlag().Value.Type() {
	case "duration":
		allowed = "a number with its unit, such as 500ms, 30s, 5m or 2h, and at most 290 years"
	case "int":
		allowed = "a whole number below 2^63"
	}
	return fmt.Errorf("--%s %q: must be %s", wrong.GetFlag().Name, wrong.GetValue(), allowed)
}
