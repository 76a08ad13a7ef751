package deadlock

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
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
			return slices.Contains(programs(), name)
		},
	}
}

// programs returns the names under which the system knows holdfast and what it becomes for locks on
// some servers.
func programs() []string {
	names := []string{"holdfast", backendurl.EtcdProgram, backendurl.PostgresProgram,
		backendurl.ZooKeeperProgram}
	for i, name := range names {
		names[i] = name[:min(len(name), longestName)]
	}
	return names
}

// longestName is what the system keeps of a name.
const longestName = 15

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
