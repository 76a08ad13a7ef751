package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
)

// fenceProgram has the drivers of databases. They make each start of a program slower, and holdfast
// run may stand around a command that takes a millisecond.
const fenceProgram = "holdfast-fence"

// handOver has the other program do what this one was called for. It returns only if that fails.
// The address goes through the environment, because the process list shows arguments to everybody.
func handOver(cmd *cobra.Command, address, shown string) error {
	path, err := findProgram(fenceProgram)
	if err != nil {
		return &exit{codeUnavailable,
			fmt.Errorf("%s: %w; install it with go install github.com/holdfast-go/holdfast/cmd/holdfast/%s@%s",
				shown, err, fenceProgram, installable())}
	}
	args := []string{fenceProgram, cmd.Name()}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Name != "on" {
			args = append(args, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	args = append(append(args, "--"), cmd.Flags().Args()...)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, guardVariable+"=") || strings.HasPrefix(v, callerVariable+"=")
	})
	err = become(path, args, append(env, guardVariable+"="+address, callerVariable+"="+caller()))
	var e *exit
	if errors.As(err, &e) {
		return err
	}
	code := failureCode(err)
	if errors.Is(err, syscall.EAGAIN) { // short of processes
		code = codeSystem
	}
	return &exit{code, fmt.Errorf("%s: %s cannot be started: %w", shown, path, err)}
}

// findProgram looks beside this program first, because the other one was installed there with it.
func findProgram(name string) (string, error) {
	own, beside := os.Executable()
	if beside == nil {
		path := filepath.Join(filepath.Dir(own), name)
		if runtime.GOOS == "windows" {
			path += ".exe"
		}
		if path, beside = child.Find(path); beside == nil {
			return path, nil
		}
	}
	path, err := child.Find(name)
	if err != nil {
		return "", fmt.Errorf("the program %s is needed there, which can be run neither beside "+
			"holdfast (%w) nor in PATH (%w)", name, beside, err)
	}
	return path, nil
}
