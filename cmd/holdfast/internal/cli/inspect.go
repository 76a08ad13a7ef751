package cli

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

func newInspect(s streams) *cobra.Command {
	var f lookFlags
	cmd := &cobra.Command{
		Use:   "inspect [flags] NAME",
		Short: "Show all that is known of a lock",
		Long: `Inspect shows who holds the lock NAME, since when if that is known, whether the
process lives if it is on this host, what remains of the lease, the token if it is
known (Redis keeps none), and each waiter in order. It changes nothing.

The lease shows whether a holder on another host lives: a holder renews its lease
three times in the span of --ttl. So if what remains gets less and less, the holder
hangs, is paused, or is cut off. (etcd does not tell what remains.) A waiter counts
as present for three seconds after it asked; on etcd for ten, and for a third more if
its process was killed.
A process in another container that has the name of this host may look gone, because
it has another number there.

Over a set of servers (redlock) it also shows what each server says: which have
granted the lock, which are behind, and which do not answer and why. If no majority
answers it shows the others, and fails.

If NAME is a semaphore (holdfast run --permits), inspect shows each slot that is
held or waited for, the gate, which waiters pass one by one, and the scouts' key, by
which they find out whether all know the same number of permits. To find them
it looks at all keys of the server, in small steps.

What another library holds is shown by its value: quoted, escaped, and cut after 40
bytes; --json has it all, on Redis its first 1024 bytes and "owner_cut" if there are
more. So do names and labels that are no plain word. A lease without an end is said
to have none, "endless" with --json: the key blocks the lock until it is removed,
also if its value is empty. Of a lock of Redisson, a hash, each client and thread is
shown with how often it holds the lock, "count" with --json; release does not free
such locks. The line "owner" is what holdfast release --owner takes.

Exit codes:
  0   it is all there, whether somebody holds the lock or not
  64  the command line is wrong, or the backend cannot show its locks
  69  the backend cannot be used, or has not answered within --timeout; what was
      printed may not be all
  71  the system has no files, processes or memory left
  74  the output cannot be written`,
		Example: `  holdfast inspect nightly
  holdfast inspect --json --on redlock://h1,h2,h3 nightly`,
		Args: oneName("inspect"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := f.open(cmd.Flags().Changed, s, f.json, false)
			if err != nil {
				return err
			}
			defer v.close()
			return f.inspect(v, s, args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	f.addJSON(cmd)
	return cmd
}

// inspect prints the lock, and then the keys of a semaphore of that name. If there are any, it does
// not print a lock that is free.
func (f *lookFlags) inspect(v *viewer, s streams, name string) error {
	ctx := context.Background()
	lock, failure := v.Inspect(ctx, name)
	var parts []look.Key
	if failure == nil && lock.Kind == look.Lock {
		if parts, failure = v.Semaphore(ctx, name); failure != nil {
			failure = fmt.Errorf("whether it is a semaphore is not known for certain: %w", failure)
		}
	}
	var text bytes.Buffer
	// If no server has said anything of the lock, there is only the error.
	told := lock.Unknown && len(lock.Nodes) > 0
	if told || !lock.Unknown && (!lock.Free() || len(parts) == 0) {
		f.describe(&text, lock)
	}
	for _, k := range parts {
		f.describe(&text, k)
	}
	if _, err := s.out.Write(text.Bytes()); err != nil {
		return &exit{codeOutput, err}
	}
	return v.failure(failure)
}

func (f *lookFlags) describe(text *bytes.Buffer, k look.Key) {
	if f.json {
		text.Write(k.JSON(true, nil, hidden))
		return
	}
	text.WriteString(k.Describe(ages, hidden))
}

// oneName wants the one name of a lock.
func oneName(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%d arguments, and there is one, the name; write holdfast %s [flags] NAME",
				len(args), command)
		}
		if err := notAddress(args[0]); err != nil {
			return err
		}
		return checkName(args[0])
	}
}
