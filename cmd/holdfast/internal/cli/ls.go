package cli

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

func newLs(s streams) *cobra.Command {
	var f lsFlags
	cmd := &cobra.Command{
		Use:   "ls [flags] [PREFIX]",
		Short: "List the locks that are held or waited for",
		Long: `Ls lists every lock that somebody holds or waits for and whose name begins with
PREFIX: who holds it, on which host, by which process, for how long, what remains
of the lease, and how many wait. It changes nothing. A - means not known: Redis does
not keep the time since when a lock is held. A process of this host that is not
there any more is marked "(gone)". A lock of another library is shown by its value,
and a lease that never ends as "no end" (holdfast leaks). A key that is no string and
no lock of Redisson is not in the list; an attempt to lock it fails and says so.

Each slot of a semaphore (holdfast run --permits) is a line of its own. So are its
gate, which waiters for a permit pass one by one, and the scouts' key, by which they
find out whether all know the same number of permits.

--after looks twice, so long apart, and adds whether the lease was renewed meanwhile:
yes; no, and then the lock is free when its lease ends; or - if that is not known. A
holder of Holdfast renews when a third of the lease is over, so 20s tell for a lease
of 30s. Of several who share a lock one that renews is enough for yes. etcd and
ZooKeeper do not show leases. With many locks each block takes so long. A process
that renews lives, though its work may be stuck.

Names, labels and hosts that are no plain word are quoted and escaped. With many
thousands of locks, each block of 4096 lines is in order. --json prints a line for
each, with all who share a lock:
  {"name":"nightly","key":"lock:nightly","kind":"lock","shared":false,"holders":
  [{"owner":"...","label":"backup","host":"h1","pid":71,"lease_ms":28000}],
  "waiting":0}

On a terminal, what holdfast leaks would find is red, and what ends by itself yellow,
unless NO_COLOR is set or TERM is dumb. On a narrow one PID, HOST and FOR are left out,
in this order, as far as that makes the lines fit.

--format prints a line for each by a template, as Go's text/template reads it, with
the names that --json has: {{.name}} {{.waiting}} {{range .holders}}{{.pid}} {{end}}.
{{.holder.label}} is of the only holder, or of the one with the longest lease. What is
not known is empty, 0 or false. Text is quoted and escaped as in the list.

On Redis the user needs no more than the category @read, on a Cluster also
+cluster|slots. Ls looks at all keys of the server, in small steps. A directory has
to be writable, as for locks. Addresses: holdfast help addresses.

Exit codes:
  0   it is all there
  64  the command line is wrong, or the backend cannot show its locks
  69  the backend cannot be used, or has not answered within --timeout; what was
      printed may not be all
  71  the system has no files, processes or memory left
  74  the output cannot be written`,
		Example: `  holdfast ls
  holdfast ls --on redis://locks.example.com report/
  holdfast ls --after 20s nightly
  holdfast ls --format '{{if gt .waiting 9}}{{.name}} {{.holder.host}}{{end}}'`,
		Args: onePrefix("ls"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			v, err := f.open(cmd.Flags().Changed, s, f.json || f.format != nil, false)
			if err != nil {
				return err
			}
			defer v.close()
			v.Again = f.after
			return f.list(v, s, strings.Join(args, ""))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(cmd)
	f.addJSON(cmd)
	cmd.Flags().DurationVar(&f.after, "after", 0,
		"look again after so long, and show which leases were renewed")
	cmd.Flags().StringVar(&f.template, "format", "", "print a line by this `template` for each key")
	return cmd
}

// lsFlags are the flags of ls.
type lsFlags struct {
	lookFlags
	after    time.Duration
	template string
	format   *look.Format // nil without a template
}

func (f *lsFlags) check(given func(flag string) bool) (err error) {
	switch {
	case f.after < 0:
		return usagef("--after %v: must be 0s or more", f.after)
	case !given("format"):
		return nil
	case f.json:
		return usagef("--json and --format are two forms of the same lines; give one")
	}
	if f.format, err = look.NewFormat(f.template); err != nil {
		return usagef("--format: %w", err)
	}
	return nil
}

// list prints the keys, batch by batch.
func (f *lsFlags) list(v *viewer, s streams, prefix string) error {
	begun, coloured := false, s.coloured()
	var broken, wrong error
	var fits []int // the columns
	err := v.List(context.Background(), prefix, func(keys []look.Key) error {
		var text bytes.Buffer
		var rows [][]string
		if !begun && !f.json && f.format == nil {
			rows = append(rows, f.head(coloured))
		}
		begun = true
		for _, k := range keys {
			switch {
			case f.json:
				text.Write(k.JSON(false, nil, hidden))
			case f.format == nil:
				rows = append(rows, f.row(k, coloured))
			default:
				if wrong = f.format.Write(&text, k); wrong != nil {
					return wrong
				}
			}
		}
		if fits == nil {
			fits = s.fits(rows)
		}
		text.WriteString(look.Table(look.Only(rows, fits)))
		_, broken = s.out.Write(text.Bytes())
		return broken
	})
	switch {
	case broken != nil:
		return &exit{codeOutput, broken}
	case wrong != nil:
		return usagef("--format: %w", wrong)
	case err == nil && !begun && !f.json && f.format == nil:
		_, _ = io.WriteString(s.err, message("no lock is held or waited for"))
	}
	return v.partly("the list is not complete", err)
}

func (f *lsFlags) head(coloured bool) []string {
	row := look.Head
	if f.after > 0 {
		row = look.HeadAgain
	}
	row = slices.Clone(row)
	if coloured {
		look.ColourHead(row)
	}
	return row
}

func (f *lsFlags) row(k look.Key, coloured bool) []string {
	row := k.Row(ages)
	if f.after > 0 {
		row = k.RowAgain(ages)
	}
	if coloured {
		k.Colour(row)
	}
	return row
}

// fits returns which columns have room on the terminal: all if it is none, or if even the fewest
// are too many, so that lines go on in the next one.
func (s streams) fits(rows [][]string) []int {
	width := math.MaxInt
	if file := s.terminal(); file != nil {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			width = columns
		}
	}
	natural := func(int) int { return math.MaxInt }
	left, fit := look.Columns(rows, width, 0, natural)
	if !fit {
		left, _ = look.Columns(rows, math.MaxInt, 0, natural)
	}
	return left
}

// terminal returns the terminal that the output goes to, or nil.
func (s streams) terminal() *os.File {
	out := s.out
	if checked, ok := out.(*checkedWriter); ok {
		out = checked.Writer
	}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

// coloured reports whether the output is a terminal that shows colours, and the user wants them.
func (s streams) coloured() bool {
	// The console of Windows wants to be told before it obeys what others do.
	return runtime.GOOS != "windows" && os.Getenv("NO_COLOR") == "" &&
		os.Getenv("TERM") != "dumb" && s.terminal() != nil
}
