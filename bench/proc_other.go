//go:build !linux

package main

import "os/exec"

// start starts a process. Only on Linux it ends, too, when this process gets SIGKILL. Workers and
// proxies end with their stdin.
func start(cmd *exec.Cmd) error { return cmd.Start() }
