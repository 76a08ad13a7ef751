package filehold_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/filehold"
)

func init() { roles["bind"] = bind }

// bind mounts FILEHOLD_TEST_DIR a second time, and says who holds the key there.
func bind() {
	place := os.Getenv("FILEHOLD_TEST_PLACE")
	check(syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	check(syscall.Mount(os.Getenv("FILEHOLD_TEST_DIR"), place, "", syscall.MS_BIND, ""))
	b, err := filehold.Open(place)
	check(err)
	r, err := b.Acquire(context.Background(), claim("k"))
	check(err)
	fmt.Print(r.Holder)
	check(b.Close())
}

// TestBindMountIsTheSameDirectory opens the directory in another mount namespace, by another path.
func TestBindMountIsTheSameDirectory(t *testing.T) {
	dir := t.TempDir()
	c := claim("k")
	acquire(t, open(t, dir), c)
	cmd := command("bind", "FILEHOLD_TEST_DIR="+dir, "FILEHOLD_TEST_PLACE="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.Output()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Logf("this system does not let us mount anything, so there is no bind mount to try: %v", err)
		return
	}
	if err != nil || string(out) != c.Owner {
		t.Errorf("through the bind mount, the holder is %q, %v; want %q", out, err, c.Owner)
	}
}
