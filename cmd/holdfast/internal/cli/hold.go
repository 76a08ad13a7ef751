package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
)

func newHold(s streams) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "hold [flags] NAME",
		Short: "Hold a lock until interrupted",
		Long: `Hold acquires the lock NAME, as run does, and holds it without a command until it
gets SIGINT (control-C), SIGTERM or another signal that ends programs. Then it
releases the lock. After a second signal the release may take one more second. As
soon as hold has the lock, it prints the fencing token on stdout.

Exit codes:
  0      the lock was held until the signal
  70     the lock was lost, or --max-hold is over
  74     the token cannot be written; the lock was released
  other  as for holdfast run; 128+N if signal N has ended the wait`,
		Example: `  # Keep the nightly job away while you look at what it does.
  holdfast hold nightly`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef(
					"%d arguments, but a lock has one name; write holdfast hold [flags] NAME",
					len(args))
			}
			return checkName(args[0])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := newJob(f, cmd.Flags().Changed, args[0], nil)
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

// hold prints the token and keeps the lock until it is lost, until a signal comes that ends
// programs, or until the token cannot be written. It then releases the lock.
func (j *job) hold(s streams, lock *holdfast.Lock, signals <-chan os.Signal,
	after *cleanup, say *messages) error {
	if !j.quiet {
		say.printf("holding %q (token %v) until interrupted", j.name, lock.Token())
	}
	printed := make(chan error, 1)
	go func() { // a reader that blocks must not delay the end
		_, err := fmt.Fprintln(s.out, lock.Token())
		printed <- err
	}()
	for {
		select {
		case err := <-printed:
			if err != nil {
				after.heed(signals)
				_ = after.release(lock)
				return &exit{codeOutput, fmt.Errorf("cannot write the token: %w", err)}
			}
			continue
		case sig := <-signals:
			if !child.Ends(sig) {
				continue
			}
		case <-lock.Done():
		}
		break
	}
	after.heed(signals)
	return held(lock, after, say)
}

// held releases the lock. It returns an *exit with codeLost if the lock was lost before, else nil;
// an error of the release is only reported.
func held(lock *holdfast.Lock, after *cleanup, say *messages) error {
	err := lock.Err()
	if err == nil {
		err = after.release(lock)
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
