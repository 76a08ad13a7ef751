package filehold

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	// keepBit is set on every file: cleaners of temporary directories leave sticky files alone (XDG base directories).
	keepBit = syscall.S_ISVTX

	// deathPoll is how often to look whether a member lives that is waited for; 0: its pipe tells.
	deathPoll = 0

	// oneClock says that processes with different boot marks can not use one directory at the same time.
	oneClock = true
)

// pause blocks the thread: the timers of package time are too coarse in a process that does nothing else.
func pause(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	syscall.Nanosleep(&ts, nil)
}

// readBootMark returns what is the same for all processes that share a boot and a clock.
func readBootMark() (mark bootMark, known bool) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return mark, false
	}
	// Processes in another time namespace have another clock, and so leases that cannot be compared with ours.
	namespace, _ := os.Readlink("/proc/self/ns/time")
	sum := sha256.Sum256(append(bytes.TrimSpace(boot), namespace...))
	return bootMark(sum[:len(mark)]), true
}

// networkFS names the network file system that the directory is on, or returns "".
func networkFS(path string) string {
	var st syscall.Statfs_t
	if interruptible(func() error { return syscall.Statfs(path, &st) }) != nil {
		return ""
	}
	switch uint32(st.Type) {
	case 0x6969:
		return "NFS"
	case 0x517b, 0xff534d42, 0xfe534d42:
		return "SMB"
	case 0x5346414f, 0x6b414653:
		return "AFS"
	case 0x73757245:
		return "Coda"
	case 0x564c:
		return "NCP"
	case 0x01021997:
		return "9P"
	case 0x00c36400:
		return "Ceph"
	case 0x0bd00bd0:
		return "Lustre"
	case 0x01161970:
		return "GFS2"
	case 0x7461636f:
		return "OCFS2"
	case 0x19830326:
		return "BeeGFS"
	}
	return ""
}

// flockHolder returns the process that holds a lock on the file, or 0 if it is not known.
func flockHolder(fd int) int {
	id, _, err := identifyOpen(fd)
	if err != nil {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	// 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
	major := id.dev>>8&0xfff | id.dev>>32&^0xfff
	minor := id.dev&0xff | id.dev>>12&^0xff
	file := fmt.Appendf(nil, "%02x:%02x:%d", major, minor, id.ino)
	for line := range bytes.Lines(locks) {
		fields := bytes.Fields(line)
		if len(fields) < 6 || string(fields[1]) != "FLOCK" || !bytes.Equal(fields[5], file) {
			continue
		}
		if pid, err := strconv.Atoi(string(fields[4])); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
