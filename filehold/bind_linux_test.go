package filehold_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

func init() {
	roles["bind"] = bind
	roles["full"] = full
	roles["fullqueue"] = fullQueue
	roles["view"] = otherView
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

// otherView opens FILEHOLD_TEST_DIR with another view of /proc, as FILEHOLD_TEST_VIEW says, and
// says who holds the key and what token another key has.
func otherView() {
	check(syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	switch os.Getenv("FILEHOLD_TEST_VIEW") {
	case "processes only":
		check(syscall.Mount("proc", "/proc", "proc", 0, "subset=pid"))
		if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); err == nil {
			panic("the boot_id can be read")
		}
	case "own boot_id":
		check(syscall.Mount(os.Getenv("FILEHOLD_TEST_PLACE"), "/proc/sys/kernel/random/boot_id", "",
			syscall.MS_BIND, ""))
	case "none":
		check(syscall.Mount("none", "/proc", "tmpfs", 0, ""))
	}
	b, err := filehold.Open(os.Getenv("FILEHOLD_TEST_DIR"))
	if err != nil {
		fmt.Print("refused: ", err)
		return
	}
	ctx := context.Background()
	r, err := b.Acquire(ctx, claim("k"))
	check(err)
	c := claim("other")
	other, err := b.Acquire(ctx, c)
	check(err)
	fmt.Printf("%s %d", r.Holder, other.Token)
	_, err = b.Release(ctx, c)
	check(err)
	check(b.Close())
}

// TestOtherViewsOfProc shares a directory with processes that see another /proc. Those whose clock
// can be told exclude each other and the rest, and have rising tokens. One without any /proc is
// refused while others are there.
func TestOtherViewsOfProc(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := claim("k")
	highest := acquire(t, b, c).Token
	id := filepath.Join(t.TempDir(), "boot_id")
	write(t, id, "00000000-0000-0000-0000-000000000000\n")
	for _, view := range []string{"the same", "processes only", "own boot_id", "the same"} {
		out, ok := inMountNamespace(t, command("view", "FILEHOLD_TEST_DIR="+dir,
			"FILEHOLD_TEST_VIEW="+view, "FILEHOLD_TEST_PLACE="+id))
		if !ok {
			return
		}
		var holder string
		var token driver.Token
		if _, err := fmt.Sscan(out, &holder, &token); err != nil || holder != c.Owner ||
			token <= highest {
			t.Fatalf("view of /proc: %s: %q; want holder %q and a token above %d", view, out,
				c.Owner, highest)
		}
		ours := claim("other")
		highest = acquire(t, b, ours).Token
		if highest <= token {
			t.Errorf("token %d after %d", highest, token)
		}
		release(t, b, ours)
	}
	out, _ := inMountNamespace(t, command("view", "FILEHOLD_TEST_DIR="+dir,
		"FILEHOLD_TEST_VIEW=none"))
	if !strings.Contains(out, "this process cannot read /proc/self/ns/time") {
		t.Errorf("without /proc: %q", out)
	}
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
	fmt.Println("other key:", errors.Is(err, syscall.ENOSPC), errors.Is(err, driver.ErrUnavailable),
		driver.Permanent(err))
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

// fullQueue fills the disk when the queue of a key has outgrown its first places.
func fullQueue() {
	place := os.Getenv("FILEHOLD_TEST_PLACE")
	check(syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	check(syscall.Mount("none", place, "tmpfs", 0, "size=1m"))
	b, err := filehold.Open(place + "/locks")
	check(err)
	ctx := context.Background()
	c := claim("k")
	_, err = b.Acquire(ctx, c)
	check(err)
	for size := int64(0); size <= 4096; {
		_, err = b.Acquire(ctx, queued("k"))
		check(err)
		info, err := os.Stat(filehold.KeyFile(b, "k"))
		check(err)
		size = info.Size()
	}
	f, err := os.Create(place + "/ballast")
	check(err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	for range 3 {
		results, err := b.Renew(ctx, []driver.Claim{c})
		fmt.Println("renew:", results[0].State, results[0].Err, err)
	}
	r, err := b.Release(ctx, c)
	fmt.Println("release:", r.State, err)
}

// TestFullDiskWithQueue fills the disk while a key is held for which a dozen wait: what is held
// goes on.
func TestFullDiskWithQueue(t *testing.T) {
	out, ok := inMountNamespace(t, command("fullqueue", "FILEHOLD_TEST_PLACE="+t.TempDir()))
	const want = "renew: held <nil> <nil>\nrenew: held <nil> <nil>\nrenew: held <nil> <nil>\nrelease: held <nil>\n"
	if ok && out != want {
		t.Errorf("on a full disk, with a dozen waiters:\n%s\nwant:\n%s", out, want)
	}
}

// TestBindMountIsTheSameDirectory opens the directory in another mount namespace, by another path.
func TestBindMountIsTheSameDirectory(t *testing.T) {
	dir := t.TempDir()
	c := claim("k")
	acquire(t, open(t, dir), c)
	out, ok := inMountNamespace(t, command("bind", "FILEHOLD_TEST_DIR="+dir, "FILEHOLD_TEST_PLACE="+
		t.TempDir()))
	if ok && out != c.Owner {
		t.Errorf("through the bind mount, the holder is %q; want %q", out, c.Owner)
	}
}

// inMountNamespace runs a command that may mount file systems. It returns false, and says so, where
// the system lets us make no namespace.
func inMountNamespace(t *testing.T, cmd *exec.Cmd) (out string, ok bool) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(),
			Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(),
			Size: 1}}
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
