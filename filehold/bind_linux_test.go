package filehold_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

func init() {
	roles["bind"] = bind
	roles["full"] = full
}

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

// full uses a directory on a file system without space.
func full() {
	place := os.Getenv("FILEHOLD_TEST_PLACE")
	check(syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	check(syscall.Mount("none", place, "tmpfs", 0, "size=1m"))
	b, err := filehold.Open(place + "/locks")
	check(err)
	ctx := context.Background()
	c, w := claim("k"), queued("k")
	_, err = b.Acquire(ctx, c)
	check(err)
	f, err := os.Create(place + "/ballast")
	check(err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	_, err = b.Acquire(ctx, claim("other"))
	fmt.Println("other key:", errors.Is(err, syscall.ENOSPC), errors.Is(err, driver.ErrUnavailable), driver.Permanent(err))
	for range 3 {
		results, err := b.Renew(ctx, []driver.Claim{c})
		fmt.Println("renew:", results[0].State, err)
	}
	r, err := b.Acquire(ctx, w)
	fmt.Println("waiter:", r.State, err)
	r, err = b.Release(ctx, c)
	fmt.Println("release:", r.State, err)
	r, err = b.Acquire(ctx, w)
	fmt.Println("waiter:", r.State, err)
	r, err = b.Release(ctx, w)
	fmt.Println("release:", r.State, err)
	b.Close()
}

// TestFullDisk fills the disk while a key is held: what is held goes on.
func TestFullDisk(t *testing.T) {
	out, ok := inMountNamespace(t, command("full", "FILEHOLD_TEST_PLACE="+t.TempDir()))
	const want = "other key: true true false\nrenew: held <nil>\nrenew: held <nil>\nrenew: held <nil>\n" +
		"waiter: busy <nil>\nrelease: held <nil>\nwaiter: held <nil>\nrelease: held <nil>\n"
	if ok && out != want {
		t.Errorf("on a full disk:\n%s\nwant:\n%s", out, want)
	}
}

// TestBindMountIsTheSameDirectory opens the directory in another mount namespace, by another path.
func TestBindMountIsTheSameDirectory(t *testing.T) {
	dir := t.TempDir()
	c := claim("k")
	acquire(t, open(t, dir), c)
	out, ok := inMountNamespace(t, command("bind", "FILEHOLD_TEST_DIR="+dir, "FILEHOLD_TEST_PLACE="+t.TempDir()))
	if ok && out != c.Owner {
		t.Errorf("through the bind mount, the holder is %q; want %q", out, c.Owner)
	}
}

// inMountNamespace runs a command that may mount file systems. It returns false, and says so, where the system lets us make no
// namespace.
func inMountNamespace(t *testing.T, cmd *exec.Cmd) (out string, ok bool) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	b, err := cmd.Output()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Logf("not tried: this system lets us mount nothing: %v", err)
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b), true
}
