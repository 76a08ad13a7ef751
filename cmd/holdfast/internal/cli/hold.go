package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/waitline"
)

func newHold(s streams) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "hold [flags] NAME...",
		Short: "Hold locks until interrupted",
		Long: `Hold acquires the lock NAME, as run does, and holds it without a command until it
gets SIGINT (control-C), SIGTERM or another signal that ends programs. Then it
releases the lock. After a second signal the release may take one more second. As
soon as hold has the lock, it prints the fencing token on stdout. With several
names it holds all of these locks, or none, until the signal or the loss of one,
and prints a token for each, in the order of the names. With --permits it holds a
permit, and prints the number of its slot on a second line.

The flags mean what they mean in run. Addresses: holdfast help addresses.

Exit codes:
  0      the lock was held until the signal
  70     the lock was lost, or --max-hold is over
  74     the token cannot be written; the lock was released
  other  as for holdfast run; 128+N if signal N has ended the wait`,
		Example: `  # Keep the nightly job away while you look at what it does.
  holdfast hold nightly

  # Keep those away who change the catalogue, and let those in who read it.
  holdfast hold --shared catalogue

  # Two jobs at once.
  holdfast hold nightly hourly`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.ArgsLenAtDash() > 0:
				return usagef("a -- behind the name, and hold runs no command; write %s", runForm)
			case len(args) == 0:
				return usagef("no name; write holdfast hold [flags] NAME...")
			}
			return checkNames(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := newJob(f, cmd.Flags().Changed, args, nil)
			if err != nil {
				return err
			}
			return j.run(s)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	addLockFlags(cmd, &f)
	return cmd
}

// hold prints the tokens and keeps the locks until one is lost, until a signal comes that ends
// programs, or until the tokens cannot be written. It then releases the locks.
func (j *job) hold(s streams, locks grip, signals <-chan os.Signal,
	after *cleanup, say *messages) error {
	var tokens strings.Builder
	for _, name := range j.names {
		fmt.Fprintln(&tokens, locks.Token(name))
	}
	slot := locks.Locks()[0].Slot()
	if slot >= 0 {
		fmt.Fprintln(&tokens, slot)
	}
	switch {
	case j.quiet:
	case slot >= 0:
		say.printf("holding permit %d of %q (token %s) until interrupted", slot, j.names[0],
			locks.Token(j.names[0]))
	case len(j.names) == 1:
		say.printf("holding %q (token %s) until interrupted", j.names[0],
			strings.TrimSpace(tokens.String()))
	default:
		say.printf("holding %s until interrupted", waitline.Quote(j.names))
	}
	printed := make(chan error, 1)
	go func() { // a reader that blocks must not delay the end
		_, err := io.WriteString(s.out, tokens.String())
		printed <- err
	}()
	for {
		select {
		case err := <-printed:
			if err != nil {
				after.heed(signals)
				_ = after.release(locks)
				return &exit{codeOutput, fmt.Errorf("cannot write the token: %w", err)}
			}
			continue
		case sig := <-signals:
			if !child.Ends(sig) {
				continue
			}
		case <-locks.Done():
		}
		break
	}
	after.heed(signals)
	return held(locks, after, say)
}

// held releases the locks. It returns an *exit with codeLost if one was lost before, and otherwise
// nil. It only reports an error of the release.
func held(locks grip, after *cleanup, say *messages) error {
	err := locks.Err()
	if released := after.release(locks); err == nil {
		err = released
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, holdfast.ErrLost):
		return &exit{codeLost, err}
	default:
		after.tell(say, err)
		return nil
	}
}
