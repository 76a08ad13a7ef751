package cli

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// newAddresses returns a help topic, which runs nothing.
func newAddresses() *cobra.Command {
	return withHelp(&cobra.Command{
		Use:   "addresses",
		Short: "How backends are named, and their parameters",
	}, func() string {
		return `The flag --on and the variable HOLDFAST_URL take the address of a backend, with
parameters as in every URL: ?NAME=VALUE&NAME=VALUE. In users, passwords and
values write the characters % / ? # & @ + as % and two hex digits. The part before
an @ is never shown. Of parameters, errors show only file names, and numbers and
durations that are not allowed.

` + backendurl.Help() + `
Locks in PostgreSQL need the program holdfast-postgres, locks in etcd
holdfast-etcd, and locks in ZooKeeper holdfast-zookeeper, in the version of
holdfast, beside it or in PATH. What an address of PostgreSQL leaves out comes
from PGHOST, PGUSER, PGPASSWORD and so on, and from ~/.pgpass.

The address file: alone means the directory that is used without an address.`
	})
}

// newStores returns the help topic about the stores of holdfast fence.
func newStores() *cobra.Command {
	return withHelp(&cobra.Command{
		Use:   "stores",
		Short: "How stores of holdfast fence are named, and their parameters",
	}, func() string {
		return `The flag --on of holdfast fence and the variable HOLDFAST_FENCE_URL take the
address of a store, which is written as that of a backend is (holdfast help
addresses).

` + backendurl.GuardHelp() + `
The schemes mariadb and postgresql mean the same as mysql and postgres. What an
address of PostgreSQL leaves out comes from PGHOST, PGUSER, PGPASSWORD and so on,
and from ~/.pgpass. Of several hosts the first that answers and can be written is
used. Databases need the program holdfast-fence, in the version of holdfast,
beside it or in PATH.

A directory serves the programs of this machine. It must not be on a network file
system. Each resource has three files in it; never delete them. Redis must not
evict the keys: its policy must be noeviction, or a volatile one.`
	})
}

// withHelp writes the help of a topic only on demand: most starts of the program do not need it.
func withHelp(cmd *cobra.Command, text func() string) *cobra.Command {
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cmd.Long = text()
		cmd.Root().HelpFunc()(cmd, args)
	})
	return cmd
}
