package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// codeFound is the exit code if something was left behind.
const codeFound = 1

func newLeaks(s streams) *cobra.Command {
	var f leakFlags
	cmd := &cobra.Command{
		Use:   "leaks [flags] [PREFIX]",
		Short: "Find locks that were left behind",
		Long: `Leaks looks at the locks whose names begin with PREFIX for what nobody will free in
time, and changes nothing. It prints a line for each, and nothing if there is none:
  no-expiry     the key has no end, so it stays until somebody removes it. This
                library always sets an end. Another library may not, or somebody
                may have removed it (PERSIST).
  process-gone  the holder was a process of this host that is not there any more.
                The lock ends with its lease. Call leaks on each host to find all.
  waiter-gone   the same for a waiter. It counts as present for a few seconds, and
                until then nobody behind it gets the lock.
  held-long     the lock is held for longer than --longer-than says. What is usual
                differs from lock to lock, so call leaks once for each PREFIX. The
                holder may be stuck, although it renews.

Redis does not keep the time since when a lock is held. There --longer-than needs
--remember: a file in which leaks notes which holders it has seen, so that the next
call, from cron or from monitoring, knows which of them still hold. A lock that was
released and taken again has another holder, and its time begins anew. Use another
file for each command line. It has no names or passwords in it. It is replaced as a
whole; a symbolic link, and what is no regular file, is refused.

In a directory locks end with their process, so a process leaves nothing behind. A
process in another container that has the name of this host looks gone, because it
has another number there: call leaks in the container, or look whether the lease is
renewed. Over a set of servers (redlock) leaks looks only at what is held on a
majority.

Holdfast release frees such a lock, by the owner that --json and holdfast inspect
show. --json prints a line for each lock, as ls does, with what was found:
  {"name":"nightly",...,"leaks":["process-gone"]}

Exit codes:
  0   nothing was left behind
  1   something was left behind
  64  the command line is wrong, or the backend cannot show its locks
  69  the backend cannot be used, or has not answered within --timeout; what was
      printed may not be all
  71  the system has no files, processes or memory left
  74  the output cannot be written`,
		Example: `  # crontab: cron sends mail if something is found
  HOLDFAST_URL=redis://looks:secret@locks.example.com
  30 6 * * *  holdfast leaks
  */5 * * * * holdfast leaks --longer-than 1h --remember /var/tmp/reports report/`,
		Args: onePrefix("leaks"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
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
	flags := cmd.Flags()
	flags.DurationVar(&f.longer, "longer-than", 0,
		"also find what is held for longer than this `time`")
	flags.StringVar(&f.remember, "remember", "",
		"a `file` that knows since when holders were seen")
	return cmd
}

// leakFlags are the flags of leaks.
type leakFlags struct {
	lookFlags
	longer   time.Duration
	remember string
}

func (f *leakFlags) check(given func(flag string) bool) error {
	switch {
	case given("longer-than") && f.longer <= 0:
		return usagef("--longer-than %v: must be more than 0s", f.longer)
	case given("remember") && f.longer <= 0:
		return usagef("--remember is for --longer-than, which is not given")
	case given("remember") && f.remember == "":
		return usagef("--remember: the name of the file is empty")
	}
	return nil
}

// leaks prints what was left behind, batch by batch.
func (f *leakFlags) leaks(v *viewer, s streams, prefix string) error {
	ctx := context.Background()
	memory, err := look.Remember(f.remember)
	if err != nil {
		return usagef("--remember: %w", err)
	}
	found, silent := false, 0
	var broken error
	err = v.List(ctx, prefix, func(keys []look.Key) error {
		leaks, failure := v.Leaks(ctx, keys)
		var text bytes.Buffer
		for i, k := range keys {
			if f.longer > 0 {
				leaks[i] = append(leaks[i], k.TooLong(f.longer, memory, time.Now())...)
				silent += f.silent(k)
			}
			found = found || len(leaks[i]) > 0
			f.report(&text, k, leaks[i])
		}
		if _, broken = s.out.Write(text.Bytes()); broken != nil {
			return broken
		}
		return failure
	})
	unsaved := memory.Save(err == nil)
	if silent > 0 {
		_, _ = io.WriteString(s.err, message(fmt.Sprintf("the backend does not know since when "+
			"%d are held: use --remember", silent)))
	}
	switch {
	case broken != nil:
		return &exit{codeOutput, broken}
	case err != nil:
		return v.partly("not all locks were looked at", err)
	case unsaved != nil:
		return &exit{codeOutput, fmt.Errorf("--remember: %w", unsaved)}
	case found:
		return &exit{code: codeFound}
	}
	return nil
}

// silent counts the holders of which nothing says since when they hold the key.
func (f *leakFlags) silent(k look.Key) (n int) {
	for _, p := range k.Holders {
		if p.Since.IsZero() && f.remember == "" {
			n++
		}
	}
	return n
}

func (f *leakFlags) report(text *bytes.Buffer, k look.Key, leaks []look.Leak) {
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
