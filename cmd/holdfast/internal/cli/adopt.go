package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// adoptFlags are the flags of holdfast adopt.
type adoptFlags struct {
	on      string
	longest time.Duration
}

func newAdopt(s streams) *cobra.Command {
	var f adoptFlags
	cmd := &cobra.Command{
		Use:   "adopt [flags]",
		Short: "Move servers to a changed set (redlock)",
		Long: `The servers of a redlock address remember their set: which servers are in it, how
many, and restart-guard. They refuse clients that are configured for another set.
If you change one of these, call adopt once, with the new address. From then on
the servers refuse programs with the old address.

All servers of the new address must answer, and at least half of the old servers
must be among them. Adopt waits until the leases of the old set have ended: for
the old restart-guard and 10 seconds. In that time nothing can be locked.

To replace a dead server: start an empty one, put its address in place of the old
one, call adopt with the new address, and give that address to all programs. An
empty server with the address of the dead one needs no adopt: it counts as the
same server after a restart. With restart-guard=0s or durable=always, start it when
the dead one has been dead for the longest --ttl. Shut down servers that are left
out. They must never come back with their data.

If new servers are a majority of the new set, as from three to seven, start no
program with the new address before adopt has ended: it could get a lock that is
still held.

To move to other servers altogether, go in steps. If none of the old servers is in
the new address, adopt cannot notice them, and both sets grant locks.

If adopt fails or is interrupted, some servers may grant nothing to anybody. Call
adopt again, with the same address or a corrected one: it goes on. To undo the
move, call it with the old address. If adopt refuses that because it was in its
last steps, call it with the new address first, and then with the old one. Of two
calls at the same time, at most one succeeds. Addresses: holdfast help addresses.

If adopt says "set of nodes in use", nothing has changed. It names the servers
that belong to another set, and those that it misses in that set. If
  - too many of its servers are left out: go in steps;
  - servers of it have lost their data ("no set"): holdfast run --on OLD check --
    true, once now and once when the restart-guard is over, has them join it again,
    even if it fails;
  - no program uses that set any more, as the servers were left out of it, came
    back with old data, or were asked with a wrong address first: empty the
    servers that belong to it (FLUSHALL; without a restart-guard, wait for the
    longest --ttl first), and call adopt again;
  - most of its servers are gone for good: stop all programs, wait for the
    restart-guard (the longest --ttl), empty those that are left, and call adopt.

Exit codes:
  0      all servers belong to the set
  64     the command line is wrong, or --longest is needed; nothing has changed
  69     a server does not answer, or the old set could go on without these
  71     the system has no files, processes or memory left
  74     all servers belong to the set, but the result cannot be written
  128+N  signal N has ended it`,
		Example: `  # h3 is dead, h6 takes its place.
  holdfast adopt --on redlock://h1,h2,h6,h4,h5`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.longest < 0 {
				return usagef("--longest %v: must not be negative", f.longest)
			}
			at, err := parseAddress(f.on, cmd.Flags().Changed("on"))
			switch {
			case err != nil:
				return err
			case at == nil:
				return usagef("no address; set --on or %s", urlVariable)
			case !strings.HasPrefix(at.String(), "redlock"):
				return usagef("%v: is no set of servers; adopt is for redlock addresses", at)
			}
			return adopt(s, at, f.longest)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.on, "on", "", "new `address` of the servers; default $HOLDFAST_URL")
	flags.DurationVar(&f.longest, "longest", 0,
		"longest --ttl of programs with the old address, if its restart-guard is 0s")
	flags.Lookup("longest").DefValue = "not known"
	completeAddresses(cmd, "on", func() []string {
		return slices.DeleteFunc(backendurl.Forms(), func(form string) bool {
			return !strings.HasPrefix(form, "redlock")
		})
	})
	return cmd
}

// adopt moves the servers to the new set, and reports the progress on stderr.
func adopt(s streams, at address, longest time.Duration) error {
	signals, stop := child.Signals()
	defer stop()
	ignoreBrokenPipe()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	quit := cancelOnSignal(signals, cancel)
	defer quit()
	say := newMessages(s.err)
	defer say.flush()

	backend, err := (&job{address: at}).open(ctx, s, nil)
	if err != nil {
		return err
	}
	after := newCleanup()
	defer after.end()
	defer after.bounded(func() { _ = backend.Close() })
	q := backend.(*quorum.Quorum) // newAdopt lets no other address through
	say.printf("moving servers to a set of %v; nothing can be locked meanwhile", q.Set())
	start := time.Now()
	err = q.Adopt(ctx, longest)
	moved := time.Since(start) >= driver.SetFresh // it waits for longer if it moves a server
	quit()
	// The output below may block. From here on a signal may end the process at once.
	stop()
	switch {
	case err == nil:
		if !moved {
			say.printf("no server was in another set; if programs use other servers, these still grant locks")
		}
		_, err = fmt.Fprintf(s.out, "%v: %d servers belong to the set\n", at, q.Set().Nodes)
		return err
	case signalled(ctx) != nil:
		say.printf("interrupted: some servers may grant nothing to anybody; call adopt again")
		return signalled(ctx)
	case errors.Is(err, driver.ErrInvalid):
		return usagef("%w; set --longest", err)
	case errors.Is(err, quorum.ErrSetInUse), errors.Is(err, quorum.ErrSameServer):
		return &exit{failureCode(err), fmt.Errorf("%v: %w; nothing has changed: see 'holdfast adopt --help'",
			at, err)}
	default:
		return &exit{failureCode(err), fmt.Errorf("%v: %w; some servers may grant nothing to anybody: call adopt again",
			at, err)}
	}
}
