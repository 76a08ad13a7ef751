//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package role

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Variable is the environment variable that names the role.
const Variable = "HOLDFAST_TEST_ROLE"

// Play plays the role that the environment names, and ends the process. Without a role it returns.
// Call it before the tests run.
func Play() {
	name := os.Getenv(Variable)
	if name == "" {
		return
	}
	play := roles[name]
	if play == nil {
		fmt.Fprintf(os.Stderr, "no role %q\n", name)
		os.Exit(99)
	}
	play()
	os.Exit(0)
}

// roles are the programs by role. Those that a test waits for print "ready" when they handle their
// signals.
var roles = map[string]func(){
	// prints the number of each signal that it gets, until its stdin ends
	"listener": func() {
		c := make(chan os.Signal, 16)
		signal.Notify(c, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
			syscall.SIGTERM, syscall.SIGALRM,
			syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT)
		fmt.Println("ready")
		end := make(chan struct{})
		go func() {
			io.Copy(io.Discard, os.Stdin)
			close(end)
		}()
		for {
			select {
			case s := <-c:
				fmt.Println(int(s.(syscall.Signal)))
			case <-end:
				return
			}
		}
	},

	// ignores SIGTERM
	"stubborn": func() {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		forever()
	},

	// begins to clean up at SIGTERM, and ends with its stdin
	"slow": func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
		fmt.Println("terminated")
		io.Copy(io.Discard, os.Stdin)
		fmt.Println("cleaned up")
	},

	// answers each line, so that a test knows that it lives
	"echo": echo,

	// is echo in a session of its own, out of reach of signals to its old process group
	"daemon": func() {
		if _, err := syscall.Setsid(); err != nil {
			panic(err)
		}
		echo()
	},

	// writes its mark to a file, over and over, while it runs
	"writer": func() {
		if os.Getenv("CLOSE_FILES") != "" {
			closeFiles()
		}
		file, err := os.OpenFile(os.Getenv("LOG"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			panic(err)
		}
		mark := []byte(os.Getenv("MARK"))
		for first := true; ; first = false {
			if _, err := file.Write(mark); err != nil {
				panic(err)
			}
			if first {
				fmt.Println("ready")
			}
		}
	},

	// fails if another one runs at the same time; it takes no notice of SIGTERM
	"alone": func() {
		signal.Ignore(syscall.SIGTERM) // else it could die before it has removed its file
		path := os.Getenv("LOG")
		only, err := os.OpenFile(path+".only", os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			fmt.Println("not alone:", err)
			os.Exit(1)
		}
		log, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(log, os.Getenv("HOLDFAST_TOKEN"))
		os.Remove(only.Name())
	},

	// prints the signals of keys; after control-\ it also reads lines from the terminal and prints
	// them
	"keys": func() {
		c := make(chan os.Signal, 16)
		signal.Notify(c, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
		if os.Getenv("IGNORE_STOP") != "" {
			signal.Ignore(syscall.SIGTSTP)
		}
		if os.Getenv("HEAR_STOP") != "" {
			signal.Notify(c, syscall.SIGTSTP)
		}
		fmt.Println("ready", os.Getpid())
		for s := range c {
			fmt.Println("signal", int(s.(syscall.Signal)))
			switch s {
			case syscall.SIGTERM:
				return
			case syscall.SIGQUIT:
				go func() {
					for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
						fmt.Println("read", lines.Text())
						if os.Getenv("IGNORE_TTIN") != "" {
							// as shells do: a read in the background is then an error
							signal.Ignore(syscall.SIGTTIN)
						}
						if lines.Text() == "end" {
							os.Exit(0)
						}
					}
				}()
			}
		}
	},

	"shell": shell,
}

func echo() {
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println("echo", lines.Text())
	}
}

// closeFiles closes all files but stdin, stdout and stderr, as daemons and careful programs do. It
// executes the program again for that: Go's runtime dies if its own files are closed.
func closeFiles() {
	for fd := 3; fd < 256; fd++ {
		syscall.CloseOnExec(fd)
	}
	if err := os.Unsetenv("CLOSE_FILES"); err != nil {
		panic(err)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	panic(syscall.Exec(self, os.Args, os.Environ()))
}

// forever blocks for ever. The caught signal keeps the runtime from calling it a deadlock.
func forever() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
	select {}
}
