package cli

import (
	"errors"
	"fmt"
	"syscall"
)

// Exit codes of holdfast itself, from sysexits.h where it has one. Any other code is the code of
// COMMAND, or 128+N for a signal N.
const (
	codeUsage         = 64
	codeUnavailable   = 69
	codeLost          = 70
	codeSystem        = 71
	codeOutput        = 74
	codeBusy          = 75
	codeNotExecutable = 126
	codeNotFound      = 127
)

// exit is an exit code as an error, so that the function that knows the code can return it.
type exit struct {
	code int
	err  error // the message; nil if there is nothing left to say
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// failureCode returns the exit code for an error of a backend or a store. It tells a shortage of
// this machine from a backend that does not answer.
func failureCode(err error) int {
	for _, shortage := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, shortage) {
			return codeSystem
		}
	}
	return codeUnavailable
}

func usagef(format string, args ...any) error {
	return &exit{codeUsage, fmt.Errorf(format, args...)}
}

// exitCode returns the exit code for an error. An error without one comes from parsing the command
// line.
func exitCode(err error) int {
	var e *exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.code
	default:
		return codeUsage
	}
}
