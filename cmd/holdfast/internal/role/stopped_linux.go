package role

import (
	"bytes"
	"fmt"
	"os"
)

// IsStopped reports whether a process is stopped, as by SIGSTOP.
func IsStopped(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	// The state is after the name, which is in parentheses and may hold any character.
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T ")), nil
}
