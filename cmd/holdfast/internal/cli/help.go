package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// newHelp returns cobra's help command, except that an unknown topic is an error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:                   "help [COMMAND]",
		Short:                 "Describe a command",
		DisableFlagsInUseLine: true,
		Long:                  `Help describes a command, as its flag --help does.`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			var names []cobra.Completion
			if topic, _, err := cmd.Root().Find(args); err == nil {
				for _, sub := range topic.Commands() {
					if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), word) {
						names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("no command %q to describe", shown(args))
			}
			topic.InitDefaultHelpFlag()
			topic.InitDefaultVersionFlag()
			return topic.Help()
		},
	}
}
