package cli

import (
	"errors"
	"fmt"
)

// Exit codes, those of sysexits.h where there is one. Any other exit code is that of the command which was run.
const (
	codeUsage         = 64
	codeUnavailable   = 69
	codeLost          = 70
	codeBusy          = 75
	codeNotExecutable = 126
	codeNotFound      = 127
)

// exit ends the program with a code. It is an error so that it can be returned from where it is known.
type exit struct {
	code int
	err  error // what to say; nil if all has been said
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exit{codeUsage, fmt.Errorf(format, args...)}
}

// exitCode is the code that an error ends the program with. What has none comes from reading the command line.
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
