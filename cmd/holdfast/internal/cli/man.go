package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
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
			switch {
			case err != nil || len(rest) > 0:
				return usagef("no command %q that has a manual page", shown(args))
			case dir != "" && len(args) > 0:
				return usagef("--dir %s and command %q: --dir writes the pages of all commands",
					dir, shown(args))
			}
			date, err := manDate()
			if err != nil {
				return err
			}
			if dir == "" {
				_, err := s.out.Write(manPage(topic, date))
				return err
			}
			if err := writeManPages(topic, date, dir); err != nil {
				return &exit{codeOutput, err}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write the pages of all commands to `DIR`")
	return cmd
}

// writeManPages writes the pages of a command and of its subcommands to a directory.
func writeManPages(cmd *cobra.Command, date, dir string) error {
	for _, sub := range withManPage(cmd.Commands()) {
		if err := writeManPages(sub, date, dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), manPage(cmd, date), 0o666)
}

// withManPage returns the commands that have a manual page: help topics have none.
func withManPage(cmds []*cobra.Command) (some []*cobra.Command) {
	for _, cmd := range cmds {
		if cmd.IsAvailableCommand() && !cmd.IsAdditionalHelpTopicCommand() {
			some = append(some, cmd)
		}
	}
	return some
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }
