//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package child

import (
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// Find returns the file to execute for the command. It fails with ErrNotFound or ErrNotExecutable.
func Find(command string) (string, error) {
	path, err := exec.LookPath(command)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%q: %w", command, ErrNotFound)
	default:
		return "", fmt.Errorf("%q: %w: %w", command, ErrNotExecutable, err)
	}
}

// Run starts the command and waits for its end. It returns an error and no Result if the command
// cannot be started.
//
// These systems have no process groups and no signals: the console sends control-C to the child
// itself. After a loss only the child is killed, when its grace is over.
func Run(c Command, o Options) (Result, error) {
	cmd := &exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Stdin: c.Stdin, Stdout: c.Stdout,
		Stderr: c.Stderr}
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNotExecutable, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var result Result
	lost := o.Done()
	var grace <-chan time.Time
	for {
		select {
		case <-o.Signals:
		case <-lost:
			lost = nil
			result.Lost = o.Err()
			grace = time.After(o.Lost(result.Lost))
		case <-grace:
			if err := cmd.Process.Kill(); err != nil {
				o.Warn(err)
			}
		case err := <-ended:
			result.Code = cmd.ProcessState.ExitCode()
			if err != nil && result.Code < 0 {
				result.Code = 255
			}
			if lost != nil && o.Err() != nil {
				result.Lost = o.Err()
				o.Lost(result.Lost)
			}
			return result, nil
		}
	}
}
