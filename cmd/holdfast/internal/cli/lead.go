package cli

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// leadForm is how holdfast lead is called.
const leadForm = "holdfast lead [flags] NAME -- COMMAND [ARGUMENT...]"

func newLead(s streams) *cobra.Command {
	var f runFlags
	var more leadFlags
	cmd := &cobra.Command{
		Use:   "lead [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command on one machine of many, for as long as it leads",
		Long: `Lead campaigns for the lock NAME. While it has the lock, it leads: it runs COMMAND.
Otherwise it stands by, and leads when the leader is gone. Start it on several
machines, and COMMAND runs on one of them.

COMMAND gets HOLDFAST_KEY and HOLDFAST_TOKEN, as from run. The token is larger for
every later leader, and for every later start of COMMAND.

When COMMAND ends by itself, with whatever exit code, lead releases the lock, so
that another leads, makes a pause, and campaigns again. The pause is a second at
first and doubles each time, up to a minute: a COMMAND that fails at once does not
keep others from leading. After a COMMAND that ran for more than a minute it is a
second again. Each pause is shortened at random, to no less than half of it.

When the lock is lost (see run), COMMAND and all that it has started get SIGTERM,
and SIGKILL after --grace. Then lead stands by again. The same happens at the end
of --max-hold, with half of --ttl as the grace at most. If the backend does not
answer, lead says so and campaigns on.

Signals are passed on to COMMAND while it runs. It gets SIGKILL --grace after
SIGTERM or SIGINT, but not after SIGHUP. When COMMAND ends after SIGTERM, SIGINT
or SIGQUIT, or is killed by a signal that was passed on, lead ends too. It
releases the lock at once, and the next leads. On standby, a signal that ends
programs ends lead. If holdfast is killed, what run says holds here: on Linux
COMMAND is killed too. If holdfast is stopped (SIGSTOP), nobody renews the lease,
and another leads while COMMAND still runs; it ends when holdfast is continued.
Have COMMAND send its token to what it writes to.

With --on-change, lead runs LINE when it learns who leads, and at every change: it
asks each second. LINE gets HOLDFAST_KEY, and HOLDFAST_LEADER, HOLDFAST_LEADER_HOST
and HOLDFAST_LEADER_PID: label, host and process of the leader; all are empty while
nobody leads. HOLDFAST_ANNOUNCED is what the leader announces (--announce). One
LINE runs at a time; of changes that come meanwhile, only the last is told. When
lead ends, LINE gets a second more.

With --status-file, lead keeps a file with a line of JSON, such as
  {"state":"leading","name":"scheduler","token":"34","leader":"a (pid 7 on b)",
  "pid":7,"since":"2026-01-02T03:04:05Z"}
The state is leading, from the start of COMMAND until it has ended, or standby. The
file is replaced as a whole, at every change and every 5 s, and removed when lead
ends: if it is older than 15 s, holdfast was killed or hangs. A symbolic link, and
what is no regular file, is not replaced.

A candidate with --preferred=false leads, but gives up when one with --preferred
waits. Then COMMAND gets SIGTERM as if the lock were lost, but lead keeps the lock
until COMMAND has ended. It gives up at most once a minute.

As a service of systemd with Type=notify, lead reports that it is ready when it
stands by or leads, and which of the two. With WatchdogSec= it reports that it works.

The flags mean what they mean in run. Addresses: holdfast help addresses.

Exit codes:
  0-255  the exit code of COMMAND, if it ended after a signal; 128+N if signal N
         has ended it
  64     the command line is wrong
  69     the backend cannot be used, and trying again would not help
  70     the lock was lost while COMMAND ended after a signal
  71     the system has no files, processes or memory left
  74     the file of --status-file cannot be written at the start
  126    COMMAND cannot be executed
  127    COMMAND is not found
  128+N  signal N came on standby`,
		Example: `  # On each of three machines: the scheduler runs on one of them.
  holdfast lead --on redis://locks.example.com scheduler -- ./scheduler

  # Another leads within ten seconds after the machine of the leader has died.
  holdfast lead --ttl 10s scheduler -- ./scheduler

  # A proxy follows the leader.
  holdfast lead --announce 10.0.0.7:8080 --on-change 'point-proxy "$HOLDFAST_ANNOUNCED"' \
      --status-file /run/scheduler.json scheduler -- ./scheduler`,
		Args: func(cmd *cobra.Command, args []string) error {
			return checkLeadArgs(args, cmd.ArgsLenAtDash(), cmd.Flags().Changed("shell"))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			command := []string{"/bin/sh", "-c", f.shell}
			if !cmd.Flags().Changed("shell") {
				command = args[1:]
			}
			j, err := newJob(f, cmd.Flags().Changed, args[:1], command)
			if err != nil {
				return err
			}
			more.preferredSet = cmd.Flags().Changed("preferred")
			return (&leader{job: j, flags: more}).run(s)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			if len(args) < 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.on, "on", "", "`address` of the backend; default $HOLDFAST_URL")
	flags.DurationVar(&f.ttl, "ttl", holdfast.DefaultTTL,
		"lease: how long nobody leads after a machine has died")
	flags.DurationVar(&f.maxHold, "max-hold", 0, "let another lead after so long")
	flags.StringVar(&f.label, "label", "", "shown to others; default: name of COMMAND")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing but what went wrong")
	flags.DurationVar(&f.grace, "grace", defaultGrace,
		"time from SIGTERM to SIGKILL; 0s: SIGKILL at once")
	flags.StringVarP(&f.shell, "shell", "c", "", "run `LINE` by /bin/sh -c, in place of COMMAND")
	flags.StringVar(&more.announce, "announce", "",
		"`text` that others see while this machine leads, as an address")
	flags.StringVar(&more.onChange, "on-change", "", "run `LINE` by /bin/sh -c when who leads changes")
	flags.StringVar(&more.statusFile, "status-file", "", "keep a `file` that says whether this leads")
	flags.BoolVar(&more.preferred, "preferred", false,
		"have candidates with --preferred=false give up for this one")
	flags.Lookup("max-hold").DefValue = "no limit"
	completeAddresses(cmd, "on", backendurl.Forms)
	return cmd
}

// checkLeadArgs wants NAME -- COMMAND, or NAME alone with --shell.
func checkLeadArgs(args []string, dash int, shell bool) error {
	names := args
	if dash >= 0 {
		names = args[:dash]
	}
	switch {
	case len(args) == 0:
		return usagef("no name; write %s", leadForm)
	case !shell && dash < 0:
		return usagef("no -- in front of the command; write %s", leadForm)
	case len(names) != 1:
		return usagef("%d names; lead takes one; write %s", len(names), leadForm)
	case shell && len(args) > 1:
		return usagef("a command after the -- beside --shell, which has the command")
	case !shell && len(args) == 1:
		return usagef("no command after the --; write %s", leadForm)
	}
	return checkName(names[0])
}
