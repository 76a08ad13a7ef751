package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// handedVariable has the address of --on for the other program, because the process list shows
// arguments to everybody.
const handedVariable = "HOLDFAST_HANDED_URL"

// commandLine is the command line of this program, without its name. handed is the address that
// holdfast has taken out of it.
var (
	commandLine []string
	handed      string
)

// takeHanded notes the command line, and takes the address that was handed over out of the
// environment: it is not for the command that runs under the lock.
func takeHanded(args []string) {
	commandLine = args
	if len(backendurl.Clients) > 0 {
		handed = os.Getenv(handedVariable)
		os.Unsetenv(handedVariable)
		os.Unsetenv(callerVariable)
	}
}

// becomeOther replaces this program by the other one, which does all that this one was called for.
// address is that of --on, or empty if the address came from the environment. becomeOther returns
// only if it fails.
func becomeOther(program, address, shown string) error {
	path, err := findProgram(program)
	if err != nil {
		return &exit{codeUnavailable, fmt.Errorf("%s: %w; install it with "+
			"go install github.com/holdfast-go/holdfast/cmd/holdfast/%s@%s", shown, err,
			program, installable())}
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, handedVariable+"=") || strings.HasPrefix(v, callerVariable+"=")
	})
	if env = append(env, callerVariable+"="+caller()); address != "" {
		env = append(env, handedVariable+"="+address)
	}
	err = become(path, append([]string{program}, withoutOn(commandLine)...), env)
	code := failureCode(err)
	if errors.Is(err, syscall.EAGAIN) { // short of processes
		code = codeSystem
	}
	return &exit{code, fmt.Errorf("%s: %s cannot be started: %w", shown, path, err)}
}

// withoutOn returns the command line without the flag --on.
func withoutOn(args []string) (rest []string) {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--":
			return append(rest, args[i:]...)
		case arg == "--on":
			i++
		case !strings.HasPrefix(arg, "--on="):
			rest = append(rest, arg)
		}
	}
	return rest
}
