//go:build unix

package testserver

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawner starts all processes on one thread that never ends, because the parent-death signal comes
// when the thread that started the process ends.
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

// StartProcess starts a process. On Linux it dies with this one, whatever ends it; it sets
// cmd.SysProcAttr for that.
func StartProcess(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	dieWithParent(cmd.SysProcAttr)
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	return <-started
}
