//go:build unix

package lab

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// process is a process that dies with the laboratory, however that ends.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	gone   chan struct{} // closed when the processes that it has started have ended, too
	told   atomic.Bool   // it was told to end
}

// start starts the command, and writes its output to the file.
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
	// All processes that it starts have the pipe, too, so that ends with the last of them.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, write)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	if err := testserver.StartProcess(cmd); err != nil {
		read.Close()
		return nil, err
	}
	p := &process{cmd: cmd, exited: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(p.exited)
		io.Copy(io.Discard, read)
		read.Close()
		close(p.gone)
	}()
	return p, nil
}

// freeze stops the process, and those that it has started, even if they have left its group.
func (p *process) freeze() {
	p.cmd.Process.Signal(syscall.SIGSTOP) // it starts no more of them
	p.signal(syscall.SIGSTOP)
}

func (p *process) thaw() {
	p.signal(syscall.SIGCONT)
	p.cmd.Process.Signal(syscall.SIGCONT)
}

// signal sends it to those that the process has started.
func (p *process) signal(s syscall.Signal) {
	for _, pid := range children(p.cmd.Process.Pid) {
		syscall.Kill(pid, s)
	}
}

// children returns the processes that another one has started, as far as the system tells.
func children(parent int) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// Behind the name, which may be anything, are the state and the parent.
		rest := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(rest) > 1 && rest[1] == strconv.Itoa(parent) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// kill ends the process and waits until it is gone, with all that it has started. It reports
// whether it had ended by itself before.
func (p *process) kill() (crashed bool) {
	crashed = p.end()
	<-p.exited
	<-p.gone
	return crashed
}

// end tells the process to end, which may take a while. It reports whether the process had ended by
// itself before.
func (p *process) end() (crashed bool) {
	crashed = !p.told.Swap(true) && p.ended()
	select {
	case <-p.gone:
	default:
		// A server may have a process that rewrites its file, which would go on in its directory.
		// As long as one process of the group is there, nothing else has the group's number.
		p.signal(syscall.SIGKILL)
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
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
