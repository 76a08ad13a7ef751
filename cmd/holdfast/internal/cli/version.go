package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func newVersion(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Version prints the version, the commit if the program was built from a
checkout, the version of Go, and the system.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.out, version())
			return err
		},
	}
}

// version returns the version as one line, for bug reports.
func version() string {
	number := "(unknown)"
	var commit string
	if info, ok := debug.ReadBuildInfo(); ok {
		number = info.Main.Version
		commit = commitOf(info.Settings)
	}
	return fmt.Sprintf("holdfast %s%s %s %s/%s", number, commit, runtime.Version(),
		runtime.GOOS, runtime.GOARCH)
}

// commitOf describes the commit that the program was built from. It returns "" if that is not
// known.
func commitOf(settings []debug.BuildSetting) string {
	value := make(map[string]string, len(settings))
	for _, s := range settings {
		value[s.Key] = s.Value
	}
	if value["vcs.revision"] == "" {
		return ""
	}
	about := []string{"commit " + value["vcs.revision"]}
	if value["vcs.time"] != "" {
		about = append(about, value["vcs.time"])
	}
	if value["vcs.modified"] == "true" {
		about = append(about, "with changes")
	}
	return " (" + strings.Join(about, ", ") + ")"
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("argument %q: none is taken", shown(args[:1]))
	}
	return nil
}
