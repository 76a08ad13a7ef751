//go:build !linux

package main

import "os/exec"

// start starts a process. Only on Linux does SIGKILL of this one end it too; workers and proxies
// end with their stdin.
func start(cmd *exec.Cmd) error { return cmd.Start() }
