package filehold

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

const (
	// keepBit is on every file: cleaners of temporary directories spare sticky files (XDG base
	// directories).
	keepBit = syscall.S_ISVTX

	// pipesTell: the system tells a writer of a named pipe when it has no reader left.
	pipesTell = true
)

// readBootMark returns a mark that is the same for all processes of one boot, or the zero mark.
func readBootMark() (mark bootMark) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return mark
	}
	sum := sha256.Sum256(bytes.TrimSpace(boot))
	return bootMark(sum[:])
}

// readClockMark returns a mark that is the same for all processes that share the directory and a
// clock, or the zero mark. Each time namespace has a clock of its own. On a file system that two
// kernels could share, the marks of two kernels differ too.
func readClockMark(path string) (mark clockMark) {
	namespace, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		if _, err := os.Lstat("/proc/self/ns"); err != nil {
			return mark
		}
		namespace = "older than time namespaces"
	}
	if !oneKernel(path) {
		boot := readBootMark()
		namespace += string(boot[:])
	}
	sum := sha256.Sum256([]byte(namespace))
	return clockMark(sum[:])
}

// oneKernel reports whether the directory is on a file system that only one running kernel can
// have.
func oneKernel(path string) bool {
	switch fileSystem(path) {
	case 0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x794c7630, 0xf2f52010, 0x2fc12fc1:
		// ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS
		return true
	}
	return false
}

// fileSystem returns the kind of file system that the directory is on, or 0.
func fileSystem(path string) uint32 {
	var st syscall.Statfs_t
	interruptible(func() error { return syscall.Statfs(path, &st) })
	return uint32(st.Type)
}

var networkFSNames = map[uint32]string{
	0x6969: "NFS",
	0x517b: "SMB", 0xff534d42: "SMB", 0xfe534d42: "SMB",
	0x5346414f: "AFS", 0x6b414653: "AFS",
	0x73757245: "Coda",
	0x564c:     "NCP",
	0x01021997: "9P",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x01161970: "GFS2",
	0x7461636f: "OCFS2",
	0x19830326: "BeeGFS",
}

// networkFS names the network file system that the directory is on, or returns "".
func networkFS(path string) string { return networkFSNames[fileSystem(path)] }

// flockHolder returns the process that holds a lock on the file, or 0 if it is not known.
func flockHolder(id fileID) int {
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
