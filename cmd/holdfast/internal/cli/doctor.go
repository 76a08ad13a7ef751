package cli

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

func newDoctor(s streams) *cobra.Command {
	var f lookFlags
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Examine the servers that locks are kept on",
		Long: `Doctor examines the servers and how they are configured, and prints what makes a
promise of the locks weaker: a server that evicts keys, keeps no data in a restart,
has replicas, has a clock that is off; and over a set of servers (redlock) one that
does not answer, or belongs to another set. It also says if nothing shows
where the prefix of the address ends. It changes nothing. What it finds is
graded:
  failure  a promise does not hold
  warning  a promise is weaker than it could be
  note     worth knowing, nothing to do
The worst comes first. The word in brackets is stable, for programs, and the name of
a section in docs/doctor.md of the source, which says more. --json prints a line for
each:
  {"severity":"warning","code":"persistence","node":"h1:6379",
  "summary":"...","advice":"..."}

If the backend cannot be opened, for example because a lone Redis is a replica or
tables are missing, that is no finding but an error. Doctor asks for no lock, so it
does not see whether a user of Redis may write; holdfast run does.

On Redis the user needs +info and +time beside the category @read, and +config|get,
without which doctor says what it could not see.

Exit codes:
  0   there is nothing but notes
  1   there are warnings
  2   there are failures
  64  the command line is wrong, or the backend has nothing to examine
  69  the backend cannot be used, or has not answered within --timeout
  71  the system has no files, processes or memory left
  74  the output cannot be written`,
		Example: `  holdfast doctor --on redis://locks.example.com
  holdfast doctor --json --on redlock://h1,h2,h3`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("%d arguments, and there are none; write holdfast doctor [flags]",
					len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := f.open(cmd.Flags().Changed, s, f.json, false)
			if err != nil {
				return err
			}
			defer v.close()
			return f.examine(v, s)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print a line of JSON for each finding")
	return cmd
}

// examine prints what the backend's check finds, and returns an *exit for the worst of it.
func (f *lookFlags) examine(v *viewer, s streams) error {
	checker, ok := v.backend.(driver.Checker)
	if !ok {
		return usagef("%sthis backend has no servers to examine", v.name)
	}
	findings, err := look.Bounded(context.Background(), f.timeout,
		func(ctx context.Context) ([]driver.Finding, error) { return v.Check(ctx, checker) })
	if err != nil {
		return v.failure(err)
	}
	var text bytes.Buffer
	worst := driver.Note
	for _, finding := range findings {
		worst = max(worst, finding.Severity)
		if f.json {
			text.Write(findingJSON(finding))
		} else {
			text.WriteString(findingText(finding))
		}
	}
	if len(findings) == 0 && !f.json {
		text.WriteString("nothing found\n")
	}
	if _, err := s.out.Write(text.Bytes()); err != nil {
		return &exit{codeOutput, err}
	}
	if worst > driver.Note {
		return &exit{code: int(worst - driver.Note)}
	}
	return nil
}

var severities = map[driver.Severity]string{
	driver.Note: "note", driver.Warning: "warning", driver.Failure: "failure",
}

func findingText(f driver.Finding) string {
	where := ""
	if f.Node != "" {
		where = f.Node + ": "
	}
	return look.Line(hidden(fmt.Sprintf("%s: %s%s [%s]", severities[f.Severity], where, f.Summary,
		f.Code))) + "\n  " + look.Line(hidden(f.Advice)) + "\n"
}

func findingJSON(f driver.Finding) []byte {
	return look.JSONLine(struct {
		Severity string `json:"severity"`
		Code     string `json:"code"`
		Node     string `json:"node,omitempty"`
		Summary  string `json:"summary"`
		Advice   string `json:"advice"`
	}{severities[f.Severity], f.Code, hidden(f.Node), hidden(f.Summary), hidden(f.Advice)})
}
