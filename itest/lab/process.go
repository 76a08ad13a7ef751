//go:build unix

package lab

import (
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// process is one that dies with the laboratory, however that ends.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	told   atomic.Bool   // to end
}

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
	if err := testserver.StartProcess(cmd); err != nil {
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
	p.end()
	<-p.exited
}

// end tells the process to end, which it may take a while to do. It reports whether the process had
// ended by itself before.
func (p *process) end() (crashed bool) {
	crashed = !p.told.Swap(true) && p.ended()
	p.cmd.Process.Kill()
	return crashed
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}
