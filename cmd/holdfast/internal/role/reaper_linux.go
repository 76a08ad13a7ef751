package role

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func init() {
	// Executes its arguments as a process that gets orphans, like the first process of a container.
	roles["reaper"] = func() {
		os.Unsetenv(Variable)
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			panic(err)
		}
		fmt.Println("exec:", syscall.Exec(os.Args[1], os.Args[1:], os.Environ()))
		os.Exit(98)
	}
}
