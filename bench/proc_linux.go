package main

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawner starts all processes on one thread that never ends: a process gets its parent-death
// signal when the thread that has started it ends.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// start starts a process that is killed when this one ends, for whatever reason. It does not get
// the terminal's control-C: this process stops it.
func start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	return <-started
}
