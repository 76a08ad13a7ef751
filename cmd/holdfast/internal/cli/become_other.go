//go:build !unix

package cli

import (
	"errors"
	"os"
	"os/exec"
)

// become runs another program. It returns an *exit with the program's exit code, or the reason why
// the program did not run.
func become(path string, args, env []string) error {
	cmd := &exec.Cmd{Path: path, Args: args, Env: env, Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: os.Stderr}
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return &exit{code: 0}
	case errors.As(err, &ended):
		return &exit{code: ended.ExitCode()}
	default:
		return err
	}
}
