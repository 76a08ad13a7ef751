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

// shell runs its arguments as a job in the foreground of its terminal, as an interactive shell does. It says to file 3
// what becomes of the job, "stopped", "continued" or "exit N", and reads from file 4 what to do with a stopped one: "fg" or "bg".
func shell() {
	signal.Ignore(syscall.SIGTTOU, syscall.SIGTSTP, syscall.SIGTTIN)
	report, orders := os.NewFile(3, "report"), bufio.NewScanner(os.NewFile(4, "orders"))
	tty := int(os.Stdin.Fd())
	foreground := func(group int) {
		if err := unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, group); err != nil {
			panic(err)
		}
	}
	// Ignored signals are inherited, and a shell gives its jobs all signals back. There is one thread that can be told to do so: the
	// job's own, by way of a program that resets them.
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
	// A job of the shell: it resets what the shell ignores, and becomes the program that it is to be.
	roles["job"] = func() {
		os.Unsetenv(Variable)
		if next := os.Getenv("JOB_ROLE"); next != "" {
			os.Setenv(Variable, next)
		}
		for _, s := range []syscall.Signal{syscall.SIGTTOU, syscall.SIGTSTP, syscall.SIGTTIN} {
			signal.Notify(make(chan os.Signal, 1), s) // a caught signal is reset by exec, an ignored one is not
		}
		path, err := exec.LookPath(os.Args[1])
		if err == nil {
			err = syscall.Exec(path, os.Args[1:], os.Environ())
		}
		fmt.Println("exec:", err)
		os.Exit(98)
	}
}
