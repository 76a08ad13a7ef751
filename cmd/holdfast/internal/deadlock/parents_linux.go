package deadlock

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// LocalParents reads who has started the processes of this host. A holdfast waits for its command.
// Other programs may not wait.
func LocalParents() Parents {
	return Parents{
		Host: look.Host(),
		Of: func(pid int) (int, bool) {
			_, parent, ok := stat(pid)
			return parent, ok
		},
		Waits: func(pid int) bool {
			name, _, _ := stat(pid)
			return name == program
		},
	}
}

// program is the name under which the system knows holdfast.
const program = "holdfast"

// stat reads the name of a process, and the number of its parent.
func stat(pid int) (name string, parent int, ok bool) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	// The name may have spaces and parentheses.
	begin, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if begin < 0 || end < begin {
		return "", 0, false
	}
	rest := bytes.Fields(line[end+1:]) // its state, its parent, and so on
	if len(rest) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(string(rest[1]))
	return string(line[begin+1 : end]), parent, err == nil && parent > 0
}
