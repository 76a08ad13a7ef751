package child

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// TakeOrphans makes this process the parent of its orphaned descendants, so that a lost lease ends
// them even if they have left the process group. Run then reaps children of others as well, and a
// wait for such a child fails with ECHILD. Processes in a session of their own are still not ended.
func TakeOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// relative says where a process belongs, and whether it is stopped.
type relative struct {
	parent, group, session int
	stopped                bool
}

// groupRuns reports whether any process of a group is not stopped and may yet stop by itself. A
// process that ignores control-Z does not count.
func groupRuns(group int) bool {
	for pid, p := range processes() {
		if p.group == group && !p.stopped && !ignores(pid, unix.SIGTSTP) {
			return true
		}
	}
	return false
}

// ignores reports whether a process ignores a signal. It does not if it has ended.
func ignores(pid int, sig syscall.Signal) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(status, []byte("\nSigIgn:"))
	mask, _, _ := bytes.Cut(rest, []byte("\n"))
	ignored, _ := strconv.ParseUint(string(bytes.TrimSpace(mask)), 16, 64)
	return ignored&(1<<(sig-1)) != 0
}

// otherGroups returns the process groups of the descendants of this process in its session, without
// those in known. timeout makes such a group, and a shell with job control one for each job.
// Processes that have ended do not count.
func otherGroups(known ...int) (groups []int) {
	all := processes()
	self, ours := os.Getpid(), all[os.Getpid()].session
	for _, p := range all {
		if p.session != ours || slices.Contains(known, p.group) ||
			slices.Contains(groups, p.group) {
			continue
		}
		// The list is no snapshot, so it may have a circle; the loop is bounded.
		parent := p.parent
		for range len(all) {
			if parent == self || parent == 0 {
				break
			}
			parent = all[parent].parent
		}
		if parent == self {
			groups = append(groups, p.group)
		}
	}
	return groups
}

// processes returns all processes that have not ended, by process ID.
func processes() map[int]relative {
	all := make(map[int]relative)
	dir, err := os.Open("/proc")
	if err != nil {
		return nil // without /proc none can be found
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The name is in parentheses and may hold any character. After it: state, parent, group,
		// session.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 4 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
			continue
		}
		stopped := fields[0][0] == 'T' || fields[0][0] == 't'
		all[pid] = relative{number(fields[1]), number(fields[2]), number(fields[3]), stopped}
	}
	return all
}

func number(text []byte) int {
	n, _ := strconv.Atoi(string(text))
	return n
}
