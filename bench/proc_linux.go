package main

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawner starts all processes: parent-death signals come when the starting thread ends, and this one does not.
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

// start starts a process that dies with this one, whatever ends it, and is spared the terminal's Ctrl-C: this one
// stops it in its own time.
func start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	return <-started
}
