package cli

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// newAddresses is a help topic: there is nothing to run.
func newAddresses() *cobra.Command {
	return &cobra.Command{
		Use:   "addresses",
		Short: "How backends are named, and their parameters",
		Long: `The flag --on and the variable HOLDFAST_URL take the address of a backend, with
parameters as in every URL: ?NAME=VALUE&NAME=VALUE. In users, passwords and
values the characters % / ? # & @ are written as % and two hex digits. What is in
front of an @ and the values of parameters are never shown.

` + backendurl.Help() + `
The address file: alone means the directory that is used without an address.`,
	}
}
