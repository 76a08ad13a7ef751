//go:build !unix

package cli

import (
	"errors"
	"os"
	"os/exec"
)

// become runs another program and ends with its exit code. It returns only if the program does not
// run.
func become(path string, args, env []string) error {
	cmd := &exec.Cmd{Path: path, Args: args, Env: env, Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: os.Stderr}
	err := cmd.Run()
	var ended *exec.ExitError
	if err == nil || errors.As(err, &ended) {
		os.Exit(cmd.ProcessState.ExitCode())
	}
	return err
}
