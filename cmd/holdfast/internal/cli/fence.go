package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/fence"
)

const (
	// guardVariable is the environment variable that stands in for --on of holdfast fence. It is
	// not the one for locks, because the store that is written is seldom the one that has the
	// locks.
	guardVariable = "HOLDFAST_FENCE_URL"

	// tokenVariable is where holdfast run has the token for its command.
	tokenVariable = "HOLDFAST_TOKEN"
)

// OpenDatabase returns the store in a database. Each of its operations takes patience at most. It
// is nil in a program without drivers for databases. Such a program hands over to the one that has
// them (see fenceProgram).
var OpenDatabase func(at backendurl.Database, patience time.Duration) (Database, error)

// Database is a store that is a table.
type Database interface {
	guard.Store

	// Schema is the statement that Init executes.
	Schema() string
}

// fenceFlags are the flags of the commands under holdfast fence.
type fenceFlags struct {
	on      string
	timeout time.Duration
	token   string
	print   bool
}

func newFence(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fence",
		Short: "Guard what a script writes by the token of its lock",
		Long:  fenceHelp,
		Example: `  # once
  holdfast fence init --on postgres://books.example.com/ledger

  # crontab: the job writes only if no later holder of the lock has begun to write
  HOLDFAST_FENCE_URL=postgres://books.example.com/ledger
  0 3 * * *  holdfast run -q --no-wait -E 0 nightly -c 'holdfast fence advance ledger && post-entries'`,
	}
	cmd.AddCommand(newAdvance(s), newShow(s), newInit(s))
	return cmd
}

// fenceHelp is written out, stores included, because it is read at each start of the program.
const fenceHelp = `A command of holdfast run has a fencing token in HOLDFAST_TOKEN, a number that is
larger for every later holder of the lock. Fence keeps the largest accepted
token of each resource in a store of your choice, and refuses a smaller one. So
a holder that was paused for longer than its lease learns before it writes that
a later holder has begun to write.

RESOURCE is the name of what is written. Use only tokens of one lock for it:
those of two locks cannot be compared.

The call comes before the write and is no part of it: a holder that is paused
between the two still writes. Only a store that compares the token in the write
itself closes this gap:
  UPDATE accounts SET balance = 90, fence = 34 WHERE id = 7 AND fence <= 34
See https://github.com/holdfast-go/holdfast/blob/main/docs/fencing.md.

The store (--on, HOLDFAST_FENCE_URL; parameters: holdfast help stores) is one of:
  file:///dir
  mysql://[user[:password]@]host[:port]/database
  postgres://[user[:password]@]host[:port][,host[:port]...]/database
  redis+cluster://host[:port][,host[:port]...]
  redis+sentinel://host[:port][,host[:port]...]/primary[/database]
  redis+unix:///path/of/socket
  redis://[user[:password]@]host[:port][/database]
  rediss+cluster://host[:port][,host[:port]...]
  rediss+sentinel://host[:port][,host[:port]...]/primary[/database]
  rediss://[user[:password]@]host[:port][/database]
  sqlite:///path/of/file

Exit codes:
  0   it is done; of advance: no larger token was accepted before
  64  the command line, the token, the resource or the address is wrong
  69  the store cannot be used, does not answer, or was never set up (holdfast
      fence init); of advance: do not write, but it may be called again
  70  of advance: a larger token was accepted, so the lock was lost to a later
      holder: do not write
  71  the system is short of files, processes or memory
  74  the output cannot be written`

func newAdvance(s streams) *cobra.Command {
	var f fenceFlags
	cmd := &cobra.Command{
		Use:   "advance [flags] RESOURCE",
		Short: "Accept the token, unless a larger one was accepted",
		Long: `Advance has the store remember the token as the largest of RESOURCE. It fails
with exit code 70 if a larger one was there, and the caller must not write. The
same token is accepted any number of times. On any other failure the store may
or may not have the token; nothing is lost by calling again.

Exit codes and stores: holdfast help fence.`,
		Example: `  holdfast run nightly -c 'holdfast fence advance ledger && post-entries'`,
		Args:    oneResource("advance"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args[0], func(ctx context.Context, store guard.Store,
				token fence.Token) error {
				return store.Advance(ctx, args[0], token)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.token, "token", "", "`number` of the holder; default $HOLDFAST_TOKEN")
	return cmd
}

func newShow(s streams) *cobra.Command {
	var f fenceFlags
	cmd := &cobra.Command{
		Use:   "show [flags] RESOURCE",
		Short: "Print the largest token that was accepted",
		Long: `Show prints the largest token of RESOURCE that was accepted, or 0 if none was.

Exit codes and stores: holdfast help fence.`,
		Args: oneResource("show"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args[0], func(ctx context.Context, store guard.Store,
				_ fence.Token) error {
				newest, err := store.Newest(ctx, args[0])
				if err != nil {
					return err
				}
				_, _ = fmt.Fprintln(s.out, newest) // Main sees whether that went well
				return nil
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	return cmd
}

func newInit(s streams) *cobra.Command {
	var f fenceFlags
	cmd := &cobra.Command{
		Use:   "init [flags]",
		Short: "Make what the store needs",
		Long: `Init creates the guard table, or the directory, unless it is there. Redis needs
nothing, and is only asked whether it answers. With --print it prints the
statement that creates the table and connects to nobody: for the migrations of a
database in which programs may not create tables.

Exit codes and stores: holdfast help fence.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, "", func(ctx context.Context, store guard.Store,
				_ fence.Token) error {
				if !f.print {
					return store.Init(ctx)
				}
				table, ok := store.(Database)
				if !ok {
					return fmt.Errorf("%w: --print: this store has no table", fence.ErrInvalid)
				}
				_, _ = fmt.Fprintln(s.out, table.Schema()+";") // Main sees whether that went well
				return nil
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.print, "print", false, "print the statement, and do nothing")
	return cmd
}

// add adds the flags that all of them have.
func (f *fenceFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.on, "on", "", "`address` of the store; default $HOLDFAST_FENCE_URL")
	flags.DurationVar(&f.timeout, "timeout", openTime, "give up after so long")
	completeAddresses(cmd, "on", backendurl.GuardForms)
}

func oneResource(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef(
				"%d arguments, and there is one, the resource; write holdfast fence %s [flags] RESOURCE",
				len(args), command)
		}
		return nil
	}
}

// run checks the flags, and does with the store what a command is for. Only init has no resource,
// and only a command with a flag for a token has one.
func (f *fenceFlags) run(cmd *cobra.Command, resource string,
	do func(context.Context, guard.Store, fence.Token) error) error {
	if f.timeout <= 0 {
		return usagef("--timeout %v: must be more than 0s", f.timeout)
	}
	at, raw, err := f.address(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	if cmd.Name() != "init" {
		if err := at.CheckResource(resource); err != nil {
			return usagef("%w", err)
		}
	}
	var token fence.Token
	if flag := cmd.Flags().Lookup("token"); flag != nil {
		if token, err = readToken(flag); err != nil {
			return err
		}
	}
	if at.Database.Kind != "" && OpenDatabase == nil {
		return handOver(cmd, raw, at.String())
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	return f.bounded(ctx, at, func(store guard.Store) error { return do(ctx, store, token) })
}

// address reads what --on says, or else the environment. It also returns it as it was written.
func (f *fenceFlags) address(given func(flag string) bool) (at *backendurl.Guard, raw string,
	err error) {
	raw, source := f.on, "--on"
	if !given("on") {
		raw, source = os.Getenv(guardVariable), guardVariable
	}
	if raw == "" {
		return nil, "", usagef("no address of a store; set --on or %s", guardVariable)
	}
	at, err = backendurl.ParseGuard(raw)
	if err != nil {
		return nil, "", usagef("%s: %w", source, err)
	}
	return at, raw, nil
}

// readToken reads what --token says, or else the environment.
func readToken(flag *pflag.Flag) (fence.Token, error) {
	text, source := flag.Value.String(), "--token"
	if !flag.Changed {
		text, source = os.Getenv(tokenVariable), tokenVariable
		if numbered := tokenVariable + "_1"; text == "" && os.Getenv(numbered) != "" {
			return 0, usagef("no token: of several locks the tokens are numbered; "+
				"write --token $%s for that of the first", numbered)
		}
		if text == "" {
			return 0, usagef(
				"no token: %s is not set, as holdfast run sets it for its command; or set --token",
				tokenVariable)
		}
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || fence.Token(n) > fence.MaxToken {
		return 0, usagef("%s %.40q: must be a number from 1 to %d", source, shown([]string{text}),
			fence.MaxToken)
	}
	return fence.Token(n), nil
}

// leftOver is how long a driver may take to say how an operation ended after its time is over.
const leftOver = time.Second

// bounded opens the store, and runs an operation on it before ctx ends. If an operation
// does not end with ctx, bounded leaves it behind, and the end of this process ends it.
func (f *fenceFlags) bounded(ctx context.Context, at *backendurl.Guard,
	do func(guard.Store) error) error {
	done := make(chan error, 1)
	go func() {
		store, err := f.open(at)
		if err == nil {
			err = do(store)
			_ = store.Close() // nothing is kept for later
		}
		done <- err
	}()
	var late <-chan time.Time
	for ended := ctx.Done(); ; {
		select {
		case err := <-done:
			return f.failure(ctx, at, err)
		case <-ended:
			ended, late = nil, time.After(leftOver)
		case <-late:
			return &exit{codeUnavailable, fmt.Errorf("%v: no answer within %v", at, f.timeout)}
		}
	}
}

func (f *fenceFlags) open(at *backendurl.Guard) (guard.Store, error) {
	if at.Database.Kind != "" {
		return OpenDatabase(at.Database, f.timeout)
	}
	return at.Open()
}

// failure gives an error of a store its exit code.
func (f *fenceFlags) failure(ctx context.Context, at *backendurl.Guard, err error) error {
	var stale *fence.StaleError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &stale):
		return &exit{codeLost,
			fmt.Errorf("%q: stale token %v, the newest is %v: the lock was lost to a later holder",
				stale.Resource, stale.Token, stale.Newest)}
	case errors.Is(err, fence.ErrInvalid):
		return usagef("%v: %w", at, err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		// ctx is asked as well because a driver may have had less time.
		return &exit{codeUnavailable, fmt.Errorf("%v: no answer within %v: %w", at, f.timeout, err)}
	default:
		return &exit{failureCode(err), fmt.Errorf("%v: %w", at, err)}
	}
}
