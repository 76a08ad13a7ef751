//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package role

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// shell runs its arguments as a foreground job, as an interactive shell does. It writes "stopped",
// "continued" or "exit N" (1000+signal if one killed the job) to file 3. It reads what to do with a
// stopped job from file 4: "fg" or "bg".
func shell() {
	signal.Ignore(syscall.SIGTTOU, syscall.SIGTSTP, syscall.SIGTTIN)
	report, orders := os.NewFile(3, "report"), bufio.NewScanner(os.NewFile(4, "orders"))
	tty := int(os.Stdin.Fd())
	foreground := func(group int) {
		if err := unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, group); err != nil {
			panic(err)
		}
	}
	// The job inherits ignored signals, but a shell resets them for its jobs. Only the job's own
	// process can do that: the role "job", which then executes the program.
	os.Setenv(Variable, "job")
	job, err := os.StartProcess(os.Args[0], os.Args, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: tty},
	})
	if err != nil {
		panic(err)
	}
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(job.Pid, &status, syscall.WUNTRACED, nil); err == syscall.EINTR {
			continue
		} else if err != nil {
			panic(err)
		}
		foreground(os.Getpid())
		if !status.Stopped() {
			code := status.ExitStatus()
			if status.Signaled() {
				code = 1000 + int(status.Signal())
			}
			fmt.Fprintln(report, "exit", code)
			return
		}
		fmt.Fprintln(report, "stopped")
		if !orders.Scan() {
			return
		}
		if orders.Text() == "fg" {
			foreground(job.Pid)
		}
		if err := syscall.Kill(-job.Pid, syscall.SIGCONT); err != nil {
			panic(err)
		}
		fmt.Fprintln(report, "continued")
	}
}

func init() {
	// A job of the shell: it resets the signals that the shell ignores, and executes its program.
	roles["job"] = func() {
		os.Unsetenv(Variable)
		if next := os.Getenv("JOB_ROLE"); next != "" {
			os.Setenv(Variable, next)
		}
		for _, s := range []syscall.Signal{syscall.SIGTTOU, syscall.SIGTSTP, syscall.SIGTTIN} {
			// exec resets a caught signal, but not an ignored one
			signal.Notify(make(chan os.Signal, 1), s)
		}
		path, err := exec.LookPath(os.Args[1])
		if err == nil {
			err = syscall.Exec(path, os.Args[1:], os.Environ())
		}
		fmt.Println("exec:", err)
		os.Exit(98)
	}
}
