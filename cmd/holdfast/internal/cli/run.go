package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/driver"
)

// urlVariable is the environment variable that stands in for --on.
const urlVariable = "HOLDFAST_URL"

const defaultGrace = 10 * time.Second

// runFlags are the flags of holdfast run; holdfast hold has some of them.
type runFlags struct {
	on      string
	ttl     time.Duration
	wait    time.Duration
	noWait  bool
	maxHold time.Duration
	shared  bool
	grace   time.Duration
	label   string
	quiet   bool
	permits int

	busyCode int
	shell    string // a shell line, in place of COMMAND
	metrics  string // the file for --metrics-file
}

func newRun(s streams) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] NAME... -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding locks",
		Long:  runHelp(),
		Example: `  # crontab: a backup every night, skipped while the last one still runs.
  # cron sends mail only if something is wrong.
  HOLDFAST_URL=file:///var/lib/myservice/locks
  0 3 * * *  holdfast run -q --no-wait -E 0 nightly -- backup --full

  # A migration that waits for at most a minute for another one to end.
  holdfast run --wait 1m migrate -- ./migrate up

  # At most four conversions on all machines, each on a device of its own.
  holdfast run --permits 4 convert -- sh -c 'exec convert --device "$HOLDFAST_SLOT"'

  # A line for the shell.
  holdfast run nightly -c 'dump | gzip >dump.gz'

  # Any number of reports at once, but none beside a migration, which asks alone.
  holdfast run --shared database -- ./report

  # Both accounts, whatever their order, without a deadlock.
  holdfast run account/7 account/9 -- ./transfer 7 9

  # A shell script that tells busy from failed.
  holdfast run --no-wait deploy -- ./deploy.sh
  case $? in
    0)  echo deployed ;;
    75) echo somebody else is deploying ;;
    70) echo the lock was lost: check what has been done ;;
    *)  echo failed ;;
  esac`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("shell") {
				return checkShellArgs(args, cmd.ArgsLenAtDash())
			}
			return checkRunArgs(args, cmd.ArgsLenAtDash())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			names, command := args, []string{"/bin/sh", "-c", f.shell}
			if !cmd.Flags().Changed("shell") {
				dash := cmd.ArgsLenAtDash()
				names, command = args[:dash], args[dash:]
			}
			if err := f.checkMetricsFile(cmd.Flags().Changed); err != nil {
				return err
			}
			return recorded(s, f.metrics, names, func(r *record) error {
				j, err := newJob(f, cmd.Flags().Changed, names, command)
				if err != nil {
					return err // of a command that has vanished, for example: a run, too
				}
				j.record = r
				return j.run(s)
			})
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			if len(args) < 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	addLockFlags(cmd, &f)
	flags := cmd.Flags()
	flags.DurationVar(&f.grace, "grace", defaultGrace,
		"time from SIGTERM to SIGKILL; 0s: SIGKILL at once")
	flags.StringVarP(&f.shell, "shell", "c", "", "run `LINE` by /bin/sh -c, in place of COMMAND")
	flags.Lookup("label").Usage += "; default: name of COMMAND"
	addMetricsFile(flags, &f)
	return cmd
}

// addLockFlags adds the flags that run and hold share: where the lock is, how to wait for it and
// how to hold it.
func addLockFlags(cmd *cobra.Command, f *runFlags) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.on, "on", "", "`address` of the backend; default $HOLDFAST_URL")
	flags.DurationVar(&f.ttl, "ttl", holdfast.DefaultTTL,
		"lease: how long the lock outlives holdfast")
	flags.DurationVar(&f.wait, "wait", 0, "give up waiting after so long")
	flags.BoolVar(&f.noWait, "no-wait", false, "do not wait")
	flags.IntVarP(&f.busyCode, "conflict-exit-code", "E", codeBusy,
		"exit `code` if another holds the lock")
	addPermits(flags, f)
	flags.DurationVar(&f.maxHold, "max-hold", 0, "give the lock up after so long")
	flags.BoolVar(&f.shared, "shared", false, "hold the lock together with others that say so")
	flags.StringVar(&f.label, "label", "", "shown to those who wait")
	flags.BoolVarP(&f.quiet, "quiet", "q", false,
		"be silent about waiting, a lock that is held, and the directory")
	// Only this text tells the reader of the help what a duration of 0 means.
	flags.Lookup("wait").DefValue = "for ever"
	flags.Lookup("max-hold").DefValue = "no limit"
	completeAddresses(cmd, "on", backendurl.Forms)
}

func runHelp() string {
	return `Run acquires the lock NAME, runs COMMAND, and releases the lock when COMMAND has
ended. While another holds the lock it waits, and says so on stderr.

COMMAND gets stdin, stdout and stderr as they are, and in its environment:
  HOLDFAST_KEY    the name of the lock
  HOLDFAST_TOKEN  the fencing token, a number that is larger for every later
                  holder. Send it to the store that you write to, and have the
                  store refuse a token smaller than one it has seen: nothing
                  else stops a holder that was paused for longer than its lease.
                  Scripts use holdfast fence for that.

With several names, COMMAND runs while all of these locks are held: run waits
until it has all, and releases all. Calls that name the same locks in another
order do not deadlock; calls of holdfast in COMMAND may. COMMAND gets, in place of
the variables above, the name and the token of each lock, numbered by its place on
the command line: HOLDFAST_KEY_1, HOLDFAST_TOKEN_1, HOLDFAST_KEY_2 and so on. What
is said of the lock below holds for each of them, and the loss of one ends COMMAND.

With --shared, any number of calls hold the lock together. A call without --shared
holds it alone. Use --shared for commands that only read. All wait in one queue: a
reader does not overtake a writer that waits. With several names, all are shared.
Do not send a reader's token to a store: it may then refuse another reader's.

With --permits N, at most N calls hold NAME at a time. Each has one of N slots, and
COMMAND its number in HOLDFAST_SLOT, from 0 to N-1. Tokens rise for each slot, so a
store has to compare them slot by slot. All calls should give the same N; if they
do not, at most the largest N hold NAME. Without --permits, NAME is
another lock, which keeps nobody from a permit. Several names cannot have permits.

With --metrics-file, run leaves metrics in Prometheus' text format for the textfile
collector of node_exporter: its exit code and when it ended, whether it got its
locks and lost one, and how long it waited for them and held them. Calls that can
run at the same time need a file each. The file is replaced as a whole; a symbolic
link, and what is no regular file, is not. After exit code 64 the file may be that
of an earlier call.

The lock is lost if the backend does not answer for as long as the lease lasts,
if somebody removes it, and at the end of --max-hold. COMMAND and all that it
has started then get SIGTERM, and SIGKILL after --grace. After --max-hold the
grace is half of --ttl at most, because the lease is not renewed any more.

Signals that holdfast gets are passed on to COMMAND and what it has started. If
COMMAND has not ended --grace after SIGTERM, SIGINT or SIGHUP, it and what it has
started get SIGKILL. A key on a terminal, as control-C, goes to COMMAND alone.
When holdfast itself is killed, COMMAND and what it has started are killed too on
Linux; on FreeBSD only COMMAND is; on other systems all run on, and the lock ends
with its lease.
Programs of another user (sudo) and programs in a session of their own are out of
reach. So are programs in a process group of their own: timeout makes one unless
it has --foreground, and a shell with job control (set -m) makes one for each job.
But on Linux a lost lock, and SIGKILL after --grace, end these as well.

After the end of COMMAND a signal gives the release of the lock one more second;
the exit code is still that of COMMAND. Programs that COMMAND leaves in the
background run on without the lock. On Linux, and as the first process of a
container, holdfast reaps orphans (no --init is needed); the container ends with
holdfast.

On a terminal, control-Z stops COMMAND and holdfast, which then does not renew the
lease. So does any other stop of COMMAND while it has the terminal of a shell with
job control. Continue both by fg or bg: COMMAND goes on if the lease has lasted,
and is ended otherwise. kill -CONT would continue COMMAND without its lock. If
COMMAND is stopped elsewhere, holdfast says so and keeps the lock. SIGTERM, SIGINT,
SIGHUP and SIGQUIT then also continue COMMAND, so that it can end; if it stops
again instead, it gets SIGKILL after --grace, after SIGQUIT too.

The backend (--on, HOLDFAST_URL; parameters: holdfast help addresses) is one of:
  ` + strings.Join(backendurl.Forms(), "\n  ") + `

Without one, locks are files in a directory of the user, /tmp/holdfast-UID. They
exclude the programs of this user on this machine, cron jobs too. For a service
with a /tmp of its own (PrivateTmp of systemd) name a directory.

Exit codes:
  0-255  the exit code of COMMAND; 128+N if signal N has ended it
  64     the command line is wrong; COMMAND was not run
  69     the backend cannot be used or does not answer; COMMAND was not run
  70     the lock was lost while COMMAND was running
  71     the system has no files, processes or memory left; COMMAND was not run
  75     another holds the lock (--no-wait, --wait; -E sets another code);
         COMMAND was not run
  126    COMMAND cannot be executed
  127    COMMAND is not found
  128+N  signal N has ended the wait; COMMAND was not run`
}

// runForm is how holdfast run is called.
const runForm = "holdfast run [flags] NAME... -- COMMAND [ARGUMENT...]"

// checkRunArgs wants NAME... -- COMMAND. The -- is required: without it flags of the command would
// be taken for flags of holdfast.
func checkRunArgs(args []string, dash int) error {
	switch {
	case dash < 0 && len(args) < 2:
		return usagef("no command to run; write %s", runForm)
	case dash < 0:
		return usagef("no -- in front of the command; write %s", runForm)
	case dash == 0:
		return usagef("no name in front of the --; write %s", runForm)
	case len(args) == dash:
		return usagef("no command after the --; write %s", runForm)
	}
	return checkNames(args[:dash])
}

// checkShellArgs wants names alone: --shell has the command.
func checkShellArgs(args []string, dash int) error {
	const form = "holdfast run [flags] NAME... --shell LINE"
	switch {
	case len(args) == 0:
		return usagef("no name beside --shell; write %s", form)
	case dash > 0 && dash < len(args):
		return usagef("a command after the -- beside --shell, which has the command; write %s", form)
	}
	return checkNames(args)
}

func checkNames(names []string) error {
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		// One name may look like this. But in front of another one it is an address without --on:
		// its password would become part of a key, which everybody sees.
		if len(names) > 1 && backendurl.LooksLikeAddress(name) {
			return usagef("the name %s looks like an address; write --on in front of an address",
				shown([]string{name}))
		}
	}
	different := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(different) > holdfast.MaxSetKeys {
		return usagef("%d names; at most %d are allowed", len(different), holdfast.MaxSetKeys)
	}
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return usagef("the name is empty; it must have 1 to %d bytes", driver.MaxKeyLen)
	case len(name) > driver.MaxKeyLen:
		return usagef("the name %.20q... has %d bytes; it must have 1 to %d", name,
			len(name), driver.MaxKeyLen)
	}
	return nil
}

// newJob checks the flags and arguments, and looks the command up, so that nothing is acquired for
// a command that does not exist. An empty command is the job of holdfast hold. It returns an *exit.
func newJob(f runFlags, given func(flag string) bool, names, command []string) (*job, error) {
	if err := f.check(given); err != nil {
		return nil, err
	}
	if err := f.checkPermits(given, names); err != nil {
		return nil, err
	}
	j := &job{
		names:    names,
		args:     command,
		ttl:      f.ttl,
		try:      f.noWait || given("wait") && f.wait == 0,
		wait:     f.wait,
		maxHold:  f.maxHold,
		shared:   f.shared,
		grace:    f.grace,
		label:    f.label,
		quiet:    f.quiet,
		permits:  f.permits,
		busyCode: f.busyCode,
		record:   new(record),
	}
	var err error
	if j.address, err = parseAddress(f.on, given("on")); err != nil {
		return nil, err
	}
	if err := j.checkAddress(); err != nil {
		return nil, err
	}
	if len(command) == 0 {
		return j, nil
	}
	if j.label == "" {
		j.label = labelOf(command[0])
	}
	if j.path, err = child.Find(command[0]); err != nil {
		return nil, startError(err)
	}
	return j, nil
}

// checkAddress checks the names and the TTL against the limits of the address.
func (j *job) checkAddress() error {
	if j.address == nil {
		return nil
	}
	for _, name := range j.names {
		if len(j.address.Prefix())+len(name) > driver.MaxKeyLen {
			return usagef(
				"the name has %d bytes and the prefix of the address %d; together they may have %d",
				len(name), len(j.address.Prefix()), driver.MaxKeyLen)
		}
	}
	if err := j.address.CheckTTL(j.ttl); err != nil {
		return usagef("--ttl %v: %w", j.ttl, err)
	}
	return nil
}

// check checks the values of the flags.
func (f *runFlags) check(given func(flag string) bool) error {
	switch {
	case f.busyCode < 0 || f.busyCode > 255:
		return usagef("--conflict-exit-code %d: must be 0 to 255", f.busyCode)
	case f.ttl < holdfast.MinTTL:
		return usagef("--ttl %v: must be at least %v", f.ttl, holdfast.MinTTL)
	case f.ttl > holdfast.MaxTTL:
		return usagef("--ttl %v: must be at most %v", f.ttl, holdfast.MaxTTL)
	case f.wait < 0:
		return usagef("--wait %v: must not be negative", f.wait)
	case given("wait") && f.noWait:
		return usagef("--wait %v and --no-wait exclude each other", f.wait)
	}
	return f.checkHold()
}

// checkHold checks --max-hold, --grace and --label.
func (f *runFlags) checkHold() error {
	switch {
	case f.maxHold < 0:
		return usagef("--max-hold %v: must not be negative", f.maxHold)
	case f.maxHold > holdfast.MaxTTL:
		return usagef("--max-hold %v: must be at most %v", f.maxHold, holdfast.MaxTTL)
	case f.maxHold > 0 && f.maxHold < f.ttl:
		return usagef("--max-hold %v is shorter than --ttl %v; make --ttl shorter as well",
			f.maxHold, f.ttl)
	case f.grace < 0:
		return usagef("--grace %v: must not be negative", f.grace)
	case len(f.label) > driver.MaxLabelLen:
		return usagef("--label %.20q... has %d bytes; at most %d are allowed", f.label,
			len(f.label), driver.MaxLabelLen)
	}
	return nil
}

// parseAddress parses the value of --on if it was given, else that of the environment. It returns
// nil if there is no address. An empty --on is an error: it comes from a variable that was not set,
// and the directory of this machine would exclude no other machine.
func parseAddress(on string, given bool) (address, error) {
	source := "--on"
	if !given && handed != "" {
		on, given = handed, true
	}
	switch {
	case given && on == "":
		return nil, usagef("--on is empty; write an address, or leave it out for $%s", urlVariable)
	case !given:
		on, source = os.Getenv(urlVariable), urlVariable
	}
	if on == "" {
		return nil, nil
	}
	a, err := backendurl.Parse(on)
	if err != nil {
		return nil, usagef("%s: %w", source, err)
	}
	if program := a.Program(); program != "" {
		if !given {
			on = "" // the other program has the same environment
		}
		return nil, becomeOther(program, on, a.String())
	}
	return a, nil
}

// labelOf returns the name of the command without its directory, cut to what a label may have.
func labelOf(command string) string {
	label := strings.ToValidUTF8(filepath.Base(command), "?")
	for len(label) > driver.MaxLabelLen {
		_, size := utf8.DecodeLastRuneInString(label)
		label = label[:len(label)-size]
	}
	return label
}

// startError gives an error of package child the exit code that a shell uses for it. An error of
// the system, not of the command, gets codeSystem.
func startError(err error) error {
	switch {
	case errors.Is(err, child.ErrNotFound):
		return &exit{codeNotFound, err}
	case errors.Is(err, child.ErrNotExecutable):
		return &exit{codeNotExecutable, err}
	default:
		return &exit{codeSystem, err}
	}
}
