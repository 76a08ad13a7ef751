package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/deadlock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// deadlockFlags are the flags of holdfast deadlocks.
type deadlockFlags struct {
	lookFlags
	after time.Duration
}

func newDeadlocks(s streams) *cobra.Command {
	var f deadlockFlags
	cmd := &cobra.Command{
		Use:   "deadlocks [flags] [PREFIX]",
		Short: "Find processes that wait for each other",
		Long: `Deadlocks looks at the locks whose names begin with PREFIX for processes that wait
for each other: each holds what another one waits for. It changes nothing. It prints
each ring of processes, the shortest ones, and nothing if there is none:
  possible deadlock of 2 processes:
    backup (pid 71 on h1) holds accounts and waits for ledger
    report (pid 88 on h2) holds ledger and waits for accounts
It looks at each ring again, after --after, and prints it if all of its processes
still hold and wait, by the same acquisitions. A ring ends when one of its processes
gives up or ends, or when its lock is freed (holdfast release).

A process is known by its host and its number; its labels are only shown. So what is
found is a possible deadlock, and no proof:
  - Of a process with several goroutines, the one that holds may be another than the
    one that waits, and then nobody is stuck. A longer --after tells more.
  - Two containers with one host name look like one host.
  - A process that waits for a limited time gives up by itself.
And these are not seen:
  - a lock that stays held for ever because its key has no end: see holdfast leaks.
  - a process that waits for a lock that it holds itself. Mostly that is two
    goroutines, and goroutines that wait in one process are not shown by the backend.
  - what a process waits for besides locks. Only of holdfast run, on this host (on
    Linux), it is known that it waits for its command: call deadlocks on that host.
  - readers: those of a process are one, and who waits is taken to wait for all who
    share the lock, whether it wants to share it too or not.
  - permits (holdfast run --permits) are seen as a deadlock only if others hold all
    of them, and each of those is stuck too. A process that waits for one and has one
    is not seen to be.
  - other libraries, which do not say who they are; waiters outside of the queue; and
    locks in other backends, or whose names do not begin with PREFIX.
  - waiters of a server that has hung, until they ask it again: within 2 seconds from
    when it goes on. If deadlocks itself waited for more than 2 seconds for an answer,
    and nothing was found, it looks again after that time, three times in all.
All who wait are kept in memory, other locks are not. --json prints a line for each
ring; "waits" of one is what "holds" of the next says, or "runs" is its process:
  {"deadlock":[{"host":"h1","pid":71,"holds":{"name":"accounts","key":"lock:accounts",
  "kind":"lock","owner":"...","label":"backup"},"waits":{...}},...]}

The user needs the rights that ls needs. Addresses: holdfast help addresses.

Exit codes:
  0   no deadlock was seen
  1   a possible deadlock was found
  64  the command line is wrong, or the backend cannot show its locks
  69  the backend cannot be used, has not answered within --timeout, or was so slow at
      three looks that it may not know who waits; nothing was printed
  71  the system has no files, processes or memory left
  74  the output cannot be written`,
		Example: `  holdfast deadlocks --after 10s
  # crontab: cron sends mail if something is found
  HOLDFAST_URL=redis://looks:secret@locks.example.com
  */5 * * * *  holdfast deadlocks --after 30s`,
		Args: onePrefix("deadlocks"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.after < 0 {
				return usagef("--after %v: must be 0s or more", f.after)
			}
			v, err := f.open(cmd.Flags().Changed, s, true, false)
			if err != nil {
				return err
			}
			defer v.close()
			return f.deadlocks(v, s, strings.Join(args, ""))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	cmd.Flags().DurationVar(&f.after, "after", time.Second,
		"look again after so long, and print what has not changed")
	cmd.Flags().BoolVar(&f.json, "json", false, "print a line of JSON for each deadlock")
	return cmd
}

const (
	// lapse is for how long a server may be silent without forgetting who waits. A waiter asks once
	// a second, and on most backends counts as one for three seconds after it has asked.
	lapse = 2 * time.Second

	// asking is in what time waiters have asked a server again that goes on.
	asking = 2 * time.Second

	// looks is how often deadlocks looks if the server was silent for too long each time.
	looks = 3
)

var errForgotten = fmt.Errorf("each of %d looks had to wait for an answer for longer than %v, in "+
	"which a server may forget who waits; whether there is a deadlock is not known", looks, lapse)

// deadlocks prints the cycles that last. A server that hung knows no waiters when it goes on, until
// they have asked again. So if it may have hung, and nothing was found, deadlocks looks again.
func (f *deadlockFlags) deadlocks(v *viewer, s streams, prefix string) error {
	for n := range looks {
		if n > 0 {
			time.Sleep(asking)
		}
		text, err := f.lasting(v, prefix)
		switch {
		case err != nil:
			return err
		case len(text) > 0:
			if _, err := s.out.Write(text); err != nil {
				return &exit{codeOutput, err}
			}
			return &exit{code: codeFound}
		case v.Silence() <= lapse:
			return nil
		}
	}
	return v.failure(errForgotten)
}

// lasting looks at the locks, and describes the cycles that last.
func (f *deadlockFlags) lasting(v *viewer, prefix string) (text []byte, err error) {
	ctx := context.Background()
	graph := deadlock.New()
	err = v.List(ctx, prefix, func(keys []look.Key) error {
		for _, k := range keys {
			graph.Add(k)
		}
		return nil
	})
	if err != nil {
		return nil, v.partly("not all locks were looked at", err)
	}
	graph.Link(deadlock.LocalParents())
	cycles := graph.Cycles()
	if len(cycles) > 0 {
		time.Sleep(f.after)
	}
	for _, c := range cycles {
		still, err := c.Still(ctx, v.Peek)
		switch {
		case err != nil:
			return nil, v.failure(err)
		case !still:
		case f.json:
			text = append(text, c.JSON()...)
		default:
			text = append(text, c.Text()...)
		}
	}
	return text, nil
}
