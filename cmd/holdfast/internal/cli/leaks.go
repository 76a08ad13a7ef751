package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// codeFound is the exit code if something was left behind.
const codeFound = 1

func newLeaks(s streams) *cobra.Command {
	var f lookFlags
	cmd := &cobra.Command{
		Use:   "leaks [flags] [PREFIX]",
		Short: "Find locks that were left behind",
		Long: `Leaks looks at the locks whose names begin with PREFIX for what nobody will free in
time, and changes nothing. It prints a line for each, and nothing if there is none:
  no-expiry     the key has no end, so it stays until somebody removes it. This
                library sets an end always; another one may not, and somebody may
                have taken it away (PERSIST).
  process-gone  the holder was a process of this host that is not there any more.
                The lock ends with its lease. Call leaks on each host to find all.

In a directory there are neither: locks end with their process. A process in another
container that has the name of this host looks gone, as it has another number there:
call leaks in the container, or look whether the lease is renewed. Over a set of
servers (redlock) only what holds on a majority is looked at.

Holdfast release frees such a lock, by the owner that --json and holdfast inspect
show. --json prints a line for each lock, as ls does, with what was found:
  {"name":"nightly",...,"leaks":["process-gone"]}

Exit codes:
  0   nothing was left behind
  1   something was left behind
  64  the command line is wrong, or the backend cannot show its locks
  69  the backend cannot be used, or has not answered within --timeout; what was
      printed may not be all
  74  the output cannot be written`,
		Example: `  # crontab: cron sends mail if something is found
  HOLDFAST_URL=redis://looks:secret@locks.example.com
  30 6 * * *  holdfast leaks`,
		Args: onePrefix("leaks"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := f.open(cmd.Flags().Changed, s, true, false)
			if err != nil {
				return err
			}
			defer v.close()
			return f.leaks(v, s, strings.Join(args, ""))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	f.addJSON(cmd)
	return cmd
}

// leaks prints what was left behind, batch by batch.
func (f *lookFlags) leaks(v *viewer, s streams, prefix string) error {
	ctx := context.Background()
	found := false
	var broken error
	err := v.List(ctx, prefix, func(keys []look.Key) error {
		leaks, failure := v.Leaks(ctx, keys)
		var text bytes.Buffer
		for i, k := range keys {
			found = found || len(leaks[i]) > 0
			f.report(&text, k, leaks[i])
		}
		if _, broken = s.out.Write(text.Bytes()); broken != nil {
			return broken
		}
		return failure
	})
	switch {
	case broken != nil:
		return &exit{codeOutput, broken}
	case err != nil:
		return v.failure(err)
	case found:
		return &exit{code: codeFound}
	}
	return nil
}

func (f *lookFlags) report(text *bytes.Buffer, k look.Key, leaks []look.Leak) {
	if f.json {
		if len(leaks) > 0 {
			text.Write(k.JSON(false, leaks, hidden))
		}
		return
	}
	for _, l := range leaks {
		fmt.Fprintf(text, "%v: %s: %v\n", k.Name, l.Why, l)
	}
}
