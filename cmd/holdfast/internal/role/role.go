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

// Variable names the part.
const Variable = "HOLDFAST_TEST_ROLE"

// Play plays the part that the environment names, and ends the process; without one it returns. It is called before the
// tests are run.
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

// roles print "ready" when they have made their provisions.
var roles = map[string]func(){
	// prints the number of each signal that it gets, until its stdin ends
	"listener": func() {
		c := make(chan os.Signal, 16)
		signal.Notify(c, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGALRM,
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

	// does not mind SIGTERM
	"stubborn": func() {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		forever()
	},

	// begins to clean up at SIGTERM, and has done so when its stdin ends
	"slow": func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
		fmt.Println("terminated")
		io.Copy(io.Discard, os.Stdin)
		fmt.Println("cleaned up")
	},

	// answers each line, so that one can tell whether it lives
	"echo": echo,

	// is the same in a session of its own, out of reach of signals to its process group
	"daemon": func() {
		if _, err := syscall.Setsid(); err != nil {
			panic(err)
		}
		echo()
	},

	// writes its mark to a file, over and over, as long as it gets to run
	"writer": func() {
		file, err := os.OpenFile(os.Getenv("LOG"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			panic(err)
		}
		if os.Getenv("CLOSE_FILES") != "" {
			for fd := 3; fd < 256; fd++ {
				if fd != int(file.Fd()) {
					syscall.Close(fd) // as daemons and careful programs do
				}
			}
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

	// fails if another one is at it at the same time
	"alone": func() {
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

	// leaves the terminal alone until control-\, and reads lines from it then; prints what it reads and the keys that are signals
	"keys": func() {
		c := make(chan os.Signal, 16)
		signal.Notify(c, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
		if os.Getenv("IGNORE_STOP") != "" {
			signal.Ignore(syscall.SIGTSTP)
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
							signal.Ignore(syscall.SIGTTIN) // as shells do: to read in the background is then an error
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

// forever waits without looking like a deadlock to the runtime.
func forever() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
	select {}
}
