package cli

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// callerVariable has the version of holdfast for the program that it hands over to, and behind a
// space its path. All versions need to read it, the oldest too, so it stays as it is.
const callerVariable = "HOLDFAST_FENCE_CALLER"

// caller is what this program says of itself.
func caller() string {
	version, path := ownVersion()
	return version + " " + path
}

// ownVersion returns the version of this program, and its path. The version is empty in a build
// from a checkout without git's.
func ownVersion() (version, path string) {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return version, path
}

// installable is the version in which the programs that belong to this one can be installed.
func installable() string {
	version, _ := ownVersion()
	if version == "" || strings.Contains(version, "+") { // of a checkout with changes
		return "latest"
	}
	return version
}

// checkCaller fails if this program has the drivers and was called by a holdfast of another
// version. It might not know what that one says, or take it for something else, so checkCaller
// comes before the command line is read. Without a version, or without a caller, there is nothing
// to compare, and it returns nil.
func checkCaller() error {
	called, by, _ := strings.Cut(os.Getenv(callerVariable), " ")
	version, path := ownVersion()
	drivers := OpenDatabase != nil || len(backendurl.Clients) > 0
	if !drivers || called == "" || version == "" || called == version {
		return nil
	}
	if by == "" {
		return &exit{codeUnavailable, fmt.Errorf(
			"%s is %.40q, which holdfast has not set: it has a version and a path; unset it",
			callerVariable, called)}
	}
	return &exit{codeUnavailable,
		fmt.Errorf("%.300s is version %.40s, says %s, and %s is version %s; install both in one version",
			by, called, callerVariable, path, version)}
}
