package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// child is a process that reads orders and writes answers, a line each. It ends with its stdin.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr strings.Builder
}

// itself returns a command that runs this program in the role that the variable names.
func itself(ctx context.Context, variable, description string) *exec.Cmd {
	executable, err := os.Executable()
	if err != nil {
		executable = os.Args[0]
	}
	cmd := exec.CommandContext(ctx, executable)
	cmd.Env = append(os.Environ(), variable+"="+description)
	return cmd
}

func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd}
	cmd.Stderr = &c.stderr
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, start(cmd)
}

// line reads the next line of the child. If there is none, the error has the child's stderr.
func (c *child) line() (string, error) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.in.Close()
		c.cmd.Wait()
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(c.cmd.Path), err,
			strings.TrimSpace(c.stderr.String()))
	}
	return strings.TrimSpace(line), nil
}

func (c *child) tell(words ...any) { fmt.Fprintln(c.in, words...) }

func (c *child) ask(words ...any) (string, error) {
	c.tell(words...)
	return c.line()
}

// stopAll ends the children at once. It kills those that have not ended after 5 seconds.
func stopAll(children ...*child) {
	for _, c := range children {
		c.in.Close()
		timer := time.AfterFunc(5*time.Second, func() { c.cmd.Process.Kill() })
		defer timer.Stop()
	}
	for _, c := range children {
		c.cmd.Wait()
	}
}

// daemon is a server process that logs to a file.
type daemon struct {
	cmd  *exec.Cmd
	gone chan struct{}
}

// startDaemon starts a server and waits until answers returns nil. It fails if the server ends or
// ctx ends before.
func startDaemon(ctx context.Context, cmd *exec.Cmd, log string,
	answers func(context.Context) error) (*daemon, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := start(cmd); err != nil {
		return nil, err
	}
	d := &daemon{cmd, make(chan struct{})}
	go func() {
		cmd.Wait()
		close(d.gone)
	}()
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		err := answers(attempt)
		cancel()
		if err == nil {
			return d, nil
		}
		select {
		case <-d.gone:
			text, _ := os.ReadFile(log)
			return nil, fmt.Errorf("%s ended: %s", filepath.Base(cmd.Path), text)
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			d.end(os.Kill)
			return nil, ctx.Err()
		}
	}
}

// end sends a signal and waits for the end. It kills the process after grace.
func (d *daemon) end(signal os.Signal) {
	d.cmd.Process.Signal(signal)
	select {
	case <-d.gone:
	case <-time.After(grace):
		d.cmd.Process.Kill()
		<-d.gone
	}
}
