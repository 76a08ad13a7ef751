// Package cli is the command line of holdfast: one file for each command.
package cli

import (
	"io"

	"github.com/spf13/cobra"
)

// streams are where a command writes to. The program that holdfast run starts gets those of the process.
type streams struct {
	out, err io.Writer
}

// Main runs the command line without the program's name, and returns the exit code. It writes to out and err
// and returns an error's code after having said what is wrong; it does not end the process.
func Main(args []string, out, err io.Writer) int {
	s := streams{out, err}
	root := newRoot(s)
	root.SetArgs(append([]string{}, args...)) // for nil cobra would take those of the process
	root.SetOut(out)
	root.SetErr(err)
	command, failure := root.ExecuteC()
	code := exitCode(failure)
	if failure == nil {
		return 0
	}
	if e, ok := failure.(*exit); ok && e.err == nil {
		return code
	}
	io.WriteString(err, message(failure.Error()))
	if code == codeUsage {
		io.WriteString(err, "See '"+command.CommandPath()+" --help'.\n")
	}
	return code
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Put a lock around a program",
		Long: `Holdfast puts a lock around a program, so that of all the machines, cron jobs
and deploy scripts that start it only one runs it at a time.`,
		Example:           `  holdfast run nightly -- /usr/local/bin/backup --full`,
		Version:           version(),
		SilenceErrors:     true, // Main says what is wrong
		SilenceUsage:      true,
		DisableAutoGenTag: true, // manual pages are the same for the same version
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(newRun(s), newVersion(s), newMan(s), newAddresses())
	root.SetHelpCommand(newHelp())
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	return root
}
