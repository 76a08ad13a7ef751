//go:build !linux

package main

import "os/exec"

// start starts a process. Only on Linux does it die with this one when that is killed with SIGKILL; workers also end
// when their standard input does.
func start(cmd *exec.Cmd) error { return cmd.Start() }
