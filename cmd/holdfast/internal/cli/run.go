package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/driver"
)

// urlVariable is the environment's alternative to --on.
const urlVariable = "HOLDFAST_URL"

const defaultGrace = 10 * time.Second

// runFlags are the flags of holdfast run.
type runFlags struct {
	on      string
	ttl     time.Duration
	wait    time.Duration
	noWait  bool
	maxHold time.Duration
	grace   time.Duration
	label   string
	quiet   bool
}

func newRun(s streams) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long:  runHelp(),
		Example: `  # crontab: a backup every night, left out if the last one is still at it.
  # Mail comes only if something is wrong.
  HOLDFAST_URL=file:///var/lib/myservice/locks
  0 3 * * *  holdfast run -q --no-wait nightly -- backup --full || [ $? -eq 75 ]

  # A migration that waits for at most a minute for another one to end.
  holdfast run --wait 1m migrate -- ./migrate up

  # A shell script that tells busy from failed.
  holdfast run --no-wait deploy -- ./deploy.sh
  case $? in
    0)  echo deployed ;;
    75) echo somebody else is deploying ;;
    70) echo the lock was lost: check what has been done ;;
    *)  echo failed ;;
  esac`,
		Args: func(cmd *cobra.Command, args []string) error { return checkRunArgs(args, cmd.ArgsLenAtDash()) },
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := newJob(f, cmd.Flags().Changed, args)
			if err != nil {
				return err
			}
			return j.run(s)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) < 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.on, "on", "", "`address` of the backend; default $HOLDFAST_URL")
	flags.DurationVar(&f.ttl, "ttl", holdfast.DefaultTTL, "lease: how long the lock outlives holdfast")
	flags.DurationVar(&f.wait, "wait", 0, "give up waiting after so long")
	flags.BoolVar(&f.noWait, "no-wait", false, "do not wait")
	flags.DurationVar(&f.maxHold, "max-hold", 0, "end COMMAND after so long with the lock")
	flags.DurationVar(&f.grace, "grace", defaultGrace, "from SIGTERM to SIGKILL on a loss; 0s: SIGKILL at once")
	flags.StringVar(&f.label, "label", "", "shown to those who wait; default: name of COMMAND")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "be silent about waiting, code 75 and the directory")
	// What the help shows; a duration of 0 has no other way to say what it means.
	flags.Lookup("wait").DefValue = "for ever"
	flags.Lookup("max-hold").DefValue = "no limit"
	return cmd
}

func runHelp() string {
	return `Run acquires the lock NAME, runs COMMAND, and releases the lock when COMMAND has
ended. While another holds the lock it waits, and says so on stderr.

COMMAND gets stdin, stdout and stderr as they are, and in its environment:
  HOLDFAST_KEY    the name of the lock
  HOLDFAST_TOKEN  the fencing token, a number that is larger for every later
                  holder. Hand it to the store that you write to, and have that
                  refuse a token smaller than one it has seen: nothing else
                  stops a holder that was paused for longer than its lease.

The lock is lost if the backend does not answer for as long as the lease lasts,
if somebody removes it, and at the end of --max-hold. COMMAND and all that it
has started then get SIGTERM, and SIGKILL after --grace. After --max-hold the
grace is half of --ttl at most, because the lease is not renewed any more.

Signals that holdfast gets are passed on to COMMAND and what it has started.
When holdfast itself is killed, they are killed too on Linux; on FreeBSD only
COMMAND is; on other systems they run on, and the lock ends with its lease. Out
of reach are programs of another user (sudo) and those that have made a session
of their own. What COMMAND leaves running in the background when it ends is left
alone, and runs on without the lock.

On a terminal, control-Z stops holdfast as well, which then does not renew: fg
continues COMMAND if the lease has lasted, and ends it otherwise.

The backend (--on, HOLDFAST_URL; parameters: holdfast help addresses) is one of:
  ` + strings.Join(backendurl.Forms(), "\n  ") + `

Without one, locks are files in a directory of the user, /tmp/holdfast-UID. They
exclude the programs of this user on this machine, cron jobs too. A service that
has a /tmp of its own (PrivateTmp of systemd) is alone there: name a directory.

Exit codes:
  0-255  the exit code of COMMAND; 128+N if signal N has ended it
  64     the command line is wrong; COMMAND was not run
  69     the backend cannot be used or does not answer; COMMAND was not run
  70     the lock was lost while COMMAND was running
  75     another holds the lock (--no-wait, --wait); COMMAND was not run
  126    COMMAND cannot be executed
  127    COMMAND is not found
  128+N  signal N has ended the wait; COMMAND was not run`
}

// checkRunArgs wants NAME -- COMMAND. The dash is not optional: without it flags of the command would be taken for
// flags of holdfast.
func checkRunArgs(args []string, dash int) error {
	const form = "holdfast run [flags] NAME -- COMMAND [ARGUMENT...]"
	switch {
	case dash < 0 && len(args) < 2:
		return usagef("no command to run; write %s", form)
	case dash < 0:
		return usagef("no -- in front of the command; write %s", form)
	case dash == 0:
		return usagef("no name in front of the --; write %s", form)
	case dash > 1:
		return usagef("%d arguments in front of the --, and a lock has one name; write %s", dash, form)
	case len(args) == dash:
		return usagef("no command after the --; write %s", form)
	}
	return checkName(args[0])
}

func checkName(name string) error {
	switch {
	case name == "":
		return usagef("the name is empty; it must have 1 to %d bytes", driver.MaxKeyLen)
	case len(name) > driver.MaxKeyLen:
		return usagef("the name %.20q... has %d bytes; it must have 1 to %d", name, len(name), driver.MaxKeyLen)
	}
	return nil
}

// newJob checks the flags and arguments, and finds the command: nothing is acquired for a command that does not
// exist.
func newJob(f runFlags, given func(flag string) bool, args []string) (*job, error) {
	switch {
	case f.ttl < holdfast.MinTTL:
		return nil, usagef("--ttl %v: must be at least %v", f.ttl, holdfast.MinTTL)
	case f.wait < 0:
		return nil, usagef("--wait %v: must not be negative", f.wait)
	case given("wait") && f.noWait:
		return nil, usagef("--wait %v and --no-wait exclude each other", f.wait)
	case f.maxHold < 0:
		return nil, usagef("--max-hold %v: must not be negative", f.maxHold)
	case f.maxHold > 0 && f.maxHold < f.ttl:
		return nil, usagef("--max-hold %v is shorter than --ttl %v; make --ttl shorter as well", f.maxHold, f.ttl)
	case f.grace < 0:
		return nil, usagef("--grace %v: must not be negative", f.grace)
	case len(f.label) > driver.MaxLabelLen:
		return nil, usagef("--label %.20q... has %d bytes; at most %d are allowed", f.label, len(f.label), driver.MaxLabelLen)
	}
	j := &job{
		name:    args[0],
		args:    args[1:],
		ttl:     f.ttl,
		try:     f.noWait || given("wait") && f.wait == 0,
		wait:    f.wait,
		maxHold: f.maxHold,
		grace:   f.grace,
		label:   f.label,
		quiet:   f.quiet,
	}
	if j.label == "" {
		j.label = labelOf(j.args[0])
	}
	var err error
	if j.address, err = parseAddress(f.on); err != nil {
		return nil, err
	}
	if j.address != nil && len(j.address.Prefix())+len(j.name) > driver.MaxKeyLen {
		return nil, usagef("the name has %d bytes and the prefix of the address %d; together they may have %d",
			len(j.name), len(j.address.Prefix()), driver.MaxKeyLen)
	}
	if j.path, err = child.Find(j.args[0]); err != nil {
		return nil, startError(err)
	}
	return j, nil
}

// parseAddress reads what --on says, or else the environment. It returns nil if both say nothing.
func parseAddress(on string) (address, error) {
	source := "--on"
	if on == "" {
		on, source = os.Getenv(urlVariable), urlVariable
	}
	if on == "" {
		return nil, nil
	}
	a, err := backendurl.Parse(on)
	if err != nil {
		return nil, usagef("%s: %w", source, err)
	}
	return a, nil
}

// labelOf is the name of the command without its directory.
func labelOf(command string) string {
	label := strings.ToValidUTF8(filepath.Base(command), "?")
	for len(label) > driver.MaxLabelLen {
		_, size := utf8.DecodeLastRuneInString(label)
		label = label[:len(label)-size]
	}
	return label
}

// startError gives an error of package child the exit code that a shell has for it.
func startError(err error) error {
	if errors.Is(err, child.ErrNotFound) {
		return &exit{codeNotFound, err}
	}
	return &exit{codeNotExecutable, err}
}
