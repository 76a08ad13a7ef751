//go:build unix

package backendurl

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// temporary is where the directory is made. It is not $XDG_RUNTIME_DIR or $TMPDIR: a login shell
// has them and a cron job does not, so the two would not exclude each other. It is a variable for
// tests, which set it when they link the command.
var temporary = "/tmp"

func userDir() (string, error) {
	uid := os.Geteuid()
	dir := filepath.Join(temporary, "holdfast-"+strconv.Itoa(uid))
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return "", err
	}
	// Anybody may have made the directory first. So it is checked once it exists, and a link is not
	// followed.
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return "", err
	case !info.IsDir():
		return "",
			fmt.Errorf(
				"%s is not a directory (%v); remove it, or name another with --on file:///dir", dir,
				info.Mode())
	case owner(info) != uid:
		return "",
			fmt.Errorf(
				"%s belongs to user %d, and this is user %d; name another with --on file:///dir",
				dir,
				owner(info), uid)
	case info.Mode().Perm()&0o077 != 0:
		return "",
			fmt.Errorf(
				"%s is open to other users (%v); chmod 700 it, or name another with --on file:///dir",
				dir, info.Mode())
	}
	return dir, nil
}

// owner returns the user ID that a file belongs to, or -1.
func owner(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}
