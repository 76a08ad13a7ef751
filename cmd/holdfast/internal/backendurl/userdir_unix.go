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

// temporary is where the directory is made. Not $XDG_RUNTIME_DIR, nor $TMPDIR: a login shell has them and a cron job
// does not, and the two would not exclude each other. A variable for the tests, which set it when they link the command.
var temporary = "/tmp"

func userDir() (string, error) {
	uid := os.Geteuid()
	dir := filepath.Join(temporary, "holdfast-"+strconv.Itoa(uid))
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return "", err
	}
	// Among temporary files anybody may have made it first: not followed if it is a link, and checked after it is there.
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s is not a directory (%v); remove it, or name another with --on file:///dir", dir, info.Mode())
	case owner(info) != uid:
		return "", fmt.Errorf("%s belongs to user %d, and this is user %d; name another with --on file:///dir", dir, owner(info), uid)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s is open to other users (%v); chmod 700 it, or name another with --on file:///dir", dir, info.Mode())
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
