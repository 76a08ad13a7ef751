package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/free"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/fence"
)

// codeRefused is the exit code if the question was answered with no.
const codeRefused = 1

// releaseFlags are the flags of holdfast release.
type releaseFlags struct {
	lookFlags
	owner string
	token string
	yes   bool
}

func newRelease(s streams) *cobra.Command {
	var f releaseFlags
	cmd := &cobra.Command{
		Use:   "release [flags] NAME",
		Short: "Free a lock that another holds",
		Long: `Release frees the lock NAME if exactly the acquisition that --owner or --token names
still holds it, as holdfast inspect shows it. If that acquisition has ended, nothing
is freed, so the lock of the next holder is always safe. Redis does not keep tokens;
there --owner is needed.

This does not stop the holder. It works on until its next renewal tells it of the
loss; a renewal comes three times in the span of its --ttl. Holdfast run then ends
its command. Until then the next holder works beside it, and only a store that
checks tokens keeps the two apart (holdfast help fence). So end the holder itself
if you can. Release is for a holder that hangs, or that is gone and has left a long
lease.

On a terminal, release says what will happen and asks. --yes does not ask; without
a terminal it is required. What was done is said on stderr, and by which user and
process, for a log to keep. The user needs the rights that locks need.

A key of another program with an empty value, with one of over 1024 bytes, or of
another type, and a lock of Redisson are not freed by this: remove them with the
tools of the server.

Of a semaphore it frees one permit, which is named by its key: holdfast release
jobs@permit/3. One of several who share a lock is freed alone.

Exit codes:
  0   the lock was held by that acquisition, and was freed
  1   the question was not answered with yes; nothing was freed
  64  the command line is wrong, the backend does not keep the token, or the key is
      not one that this frees; nothing was freed
  69  the backend cannot be used, or has not answered within --timeout; the error
      says whether the lock may have been freed, and to call again does no harm
  70  that acquisition does not hold the lock (any more); nothing was freed
  71  the system has no files, processes or memory left`,
		Example: `  holdfast inspect nightly
  holdfast release nightly --token 1767225600123456`,
		Args: oneName("release"),
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := f.which(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			if !f.yes && !canAsk() {
				return usagef("there is no terminal to ask on; with --yes the lock is freed at once")
			}
			v, err := f.open(cmd.Flags().Changed, s, false, true)
			if e := (*exit)(nil); errors.As(err, &e) && e.code != codeUsage && e.err != nil {
				err = &exit{e.code, fmt.Errorf("nothing was freed: %w", e.err)}
			}
			if err != nil {
				return err
			}
			defer v.close()
			return f.release(v, s, args[0], which)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.owner, "owner", "", "`value` of the acquisition, as inspect shows it")
	flags.StringVar(&f.token, "token", "", "`number` of the acquisition, where inspect shows one")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	return cmd
}

// which reads the acquisition that the flags name.
func (f *releaseFlags) which(given func(flag string) bool) (which look.Acquisition, err error) {
	switch {
	case given("owner") == given("token"):
		return which, usagef("say which acquisition, by one of --owner and --token; " +
			"holdfast inspect shows the owner, and the token where the backend keeps it")
	case given("owner") && f.owner == "":
		return which, usagef("--owner is empty; holdfast inspect shows the value, " +
			"and what has an empty one is removed with the tools of the server")
	case given("owner"):
		return look.Acquisition{Owner: f.owner}, nil
	}
	n, err := strconv.ParseUint(f.token, 10, 64)
	if err != nil || n == 0 || n > uint64(fence.MaxToken) {
		return which, usagef("--token %.40q: must be a number from 1 to %d",
			shown([]string{f.token}), fence.MaxToken)
	}
	return look.Acquisition{Token: driver.Token(n)}, nil
}

// release frees the lock, if that acquisition holds it and the operator agrees.
func (f *releaseFlags) release(v *viewer, s streams, name string, which look.Acquisition) error {
	ctx := context.Background()
	say := func(format string, args ...any) {
		write(ctx, s.err, message(fmt.Sprintf(format, args...), name))
	}
	lock := free.Lock{View: &v.View, Backend: v.backend, Name: name, Which: which}
	key, holder, err := lock.Holder(ctx)
	if err != nil {
		return v.notFreed(err)
	}
	is, will := key.Consequences(holder)
	say("%s", is)
	say("%s", will)
	if !f.yes && !confirmed(ctx, s) {
		return &exit{codeRefused, errors.New("nothing was freed")}
	}
	now, unseen, err := lock.Free(ctx, key, holder)
	switch {
	case err != nil:
		return v.notFreed(err)
	case unseen != nil:
		say("freed %v, which %v held; who holds it now is not known: %v", key.Name, holder, unseen)
	default:
		say("freed %v, which %v held; now %s", key.Name, holder, now.Held())
	}
	say("it was freed by %s", myself())
	return nil
}

// myself names the user and the process that run this program, for readers of a log.
func myself() string {
	name := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("%s (pid %d on %s)", look.Shown(name), os.Getpid(), look.Shown(host))
}

// notFreed returns the *exit for a lock that was not freed, or not for certain.
func (v *viewer) notFreed(err error) error {
	var (
		notHeld  *free.NotHeldError
		notKnown *free.NotKnownError
		other    *free.OtherTypeError
	)
	switch {
	case errors.As(err, &notHeld):
		return &exit{codeLost, err}
	case errors.Is(err, free.ErrRedisson), errors.Is(err, free.ErrUnnamed), errors.As(err, &other):
		return usagef("%s%w", v.name, err)
	case errors.As(err, &notKnown):
		return usagef("%s%w; use --owner", v.name, err)
	default:
		return v.failure(err)
	}
}

// canAsk reports whether there is a terminal for question and answer.
func canAsk() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd()))
}

// confirmed asks on the terminal. Anything but yes is no.
func confirmed(ctx context.Context, s streams) bool {
	write(ctx, s.err, "holdfast: free it? [y/N] ")
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	}
	return false
}
