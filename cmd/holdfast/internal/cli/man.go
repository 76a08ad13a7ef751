package cli

import (
	"bytes"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan(s streams) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:                   "man [--dir DIR] [COMMAND]",
		Short:                 "Print the manual page of a command",
		DisableFlagsInUseLine: true,
		Long: `Man prints the manual page of a command, or of holdfast itself if none is named.
With --dir it writes the pages of all commands to a directory, for a package or
for a directory of MANPATH.`,
		Example: `  holdfast man run | man -l -
  holdfast man --dir /usr/local/share/man/man1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			setManText(topic)
			switch {
			case err != nil || len(rest) > 0:
				return usagef("no command %q that has a manual page", strings.Join(args, " "))
			case dir == "":
				var page bytes.Buffer
				if err := doc.GenMan(topic, manHeader(), &page); err != nil {
					return &exit{1, err}
				}
				_, err := page.WriteTo(s.out)
				return err
			case len(args) > 0:
				return usagef("--dir %s and command %q: --dir writes the pages of all commands", dir, strings.Join(args, " "))
			}
			if err := doc.GenManTree(topic, manHeader(), dir); err != nil {
				return &exit{1, err}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write the pages of all commands to `DIR`")
	return cmd
}

// setManText marks the tables in the descriptions of a command and those below it, which are lines that begin with two
// spaces, as what Markdown calls code: otherwise the manual page has them as running text.
func setManText(cmd *cobra.Command) {
	var text strings.Builder
	table := false
	for line := range strings.Lines(cmd.Long) {
		if indented := strings.HasPrefix(line, "  "); indented != table && line != "\n" {
			table = indented
			text.WriteByte('\n')
		}
		if table {
			line = "    " + strings.TrimPrefix(line, "  ")
		}
		text.WriteString(line)
	}
	cmd.Long = text.String()
	for _, sub := range cmd.Commands() {
		setManText(sub)
	}
}

// manHeader dates a page by the commit, so that it is the same whenever it is made. Without a commit, doc takes
// SOURCE_DATE_EPOCH from the environment, or today.
func manHeader() *doc.GenManHeader {
	header := &doc.GenManHeader{Section: "1", Source: "Holdfast", Manual: "Holdfast Manual"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if t, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				header.Date = &t
			}
		}
	}
	return header
}
