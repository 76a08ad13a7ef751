package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/watch"
)

// shortestEvery keeps watch from being a load on the server.
const shortestEvery = 100 * time.Millisecond

func newWatch(s streams) *cobra.Command {
	var f lookFlags
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch [flags] [PREFIX]",
		Short: "Show the locks live on a terminal",
		Long: `Watch shows the locks whose names begin with PREFIX, as ls does, and shows them
again and again. It needs a terminal; programs use holdfast ls --json. It changes
nothing. These keys do something:
  up, down, j, k, page up and down, home, end    move
  enter      inspect the lock: all of its holders and waiters in order, and over a
             set of servers what each of them says; esc goes back
  s          sort by the next column; v marks it
  r          the other way round
  /          show only rows with a text; enter keeps it, esc takes it away
  q, ctrl+c  quit
Where it is narrow, PID, HOST and FOR are left out, in this order.

When the server does not answer, the second line says so and how old the rest is, and
watch goes on asking. Up to 10000 locks are shown. Each look asks for all of them, and
on Redis for all keys of the server, in small steps: with very many keys set --every
higher. The user needs the rights that ls needs. Addresses: holdfast help addresses.

Exit codes:
  0      somebody has quit
  64     the command line is wrong, there is no terminal, or the backend cannot show
         its locks
  69     the backend could not be used at the start
  71     the system has no files, processes or memory left
  74     the terminal fails
  128+N  signal N has ended it`,
		Example: `  holdfast watch
  holdfast watch --every 10s --on redis://locks.example.com report/`,
		Args: onePrefix("watch"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case every < shortestEvery:
				return usagef("--every %v: must be at least %v", every, shortestEvery)
			case !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())):
				return usagef("watch needs a terminal; without one use holdfast ls --json")
			case os.Getenv("TERM") == "dumb":
				return usagef("watch needs a terminal whose cursor moves, and TERM is dumb; use holdfast ls")
			}
			v, err := f.open(cmd.Flags().Changed, s, true, false)
			if err != nil {
				return err
			}
			defer v.close()
			return watchView(v, strings.Join(args, ""), every)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "look again after so long")
	return cmd
}

// watchView shows the locks until somebody quits or a signal comes.
func watchView(v *viewer, begins string, every time.Duration) error {
	signals, stop := child.Signals()
	defer stop()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	quit := cancelOnSignal(signals, cancel)
	defer quit()
	title := strings.TrimSuffix(v.name, ": ")
	if begins != "" {
		title = fmt.Sprintf("%s  %q", title, begins)
	}
	err := watch.Run(ctx, watch.NewScreen(title, v.Prefix, hidden, time.Now), watch.Options{
		View: &v.View, Begins: begins, Every: every, In: os.Stdin, Out: os.Stdout})
	if signalled := signalled(ctx); signalled != nil {
		return signalled
	}
	if err != nil {
		return &exit{codeOutput, fmt.Errorf("the terminal fails: %w", err)}
	}
	return nil
}
