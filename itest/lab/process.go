package lab

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// process is one that dies with the laboratory, however that ends.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
}

// spawner starts all processes: the signal that a parent's death sends comes when the thread that started them ends, and
// this one does not.
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

// start starts the command, with what it says going to the file.
func start(cmd *exec.Cmd, output string) (*process, error) {
	file, err := os.OpenFile(output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = file
	}
	cmd.Stderr = file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) freeze() { p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) thaw()   { p.cmd.Process.Signal(syscall.SIGCONT) }

// kill ends the process and waits until it is gone.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}
