//go:build darwin || freebsd

package filehold

import "syscall"

// mountLocal is MNT_LOCAL of sys/mount.h, which package syscall does not name on every system.
const mountLocal = 0x1000

// networkFS names the network file system that the directory is on, or returns "".
func networkFS(path string) string {
	var st syscall.Statfs_t
	if interruptible(func() error {
		return syscall.Statfs(path, &st)
	}) != nil || uint64(st.Flags)&mountLocal != 0 {
		return ""
	}
	var name []byte
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	if len(name) == 0 {
		return "unknown"
	}
	return string(name)
}
