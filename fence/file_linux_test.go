//go:build linux

package fence_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
)

// TestFilesBesideHaveTheMode sees that all files beside have the mode, whatever the umask.
func TestFilesBesideHaveTheMode(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	f := fence.File{Path: filepath.Join(t.TempDir(), "f"), Mode: 0o666}
	if err := f.Write(t.Context(), 1, strings.NewReader("a")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{f.Path, f.Path + ".fence", f.Path + ".lock"} {
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o666 {
			t.Errorf("%s: %v, %v; want the mode 0666", filepath.Base(name), info, err)
		}
	}
}

// TestReadOnlyFile has a mode that lets nobody write the file by other means.
func TestReadOnlyFile(t *testing.T) {
	if dir := os.Getenv("HOLDFAST_TEST_DIR"); dir != "" {
		f := fence.File{Path: filepath.Join(dir, "f"), Mode: 0o444}
		for token := fence.Token(1); token < 3; token++ {
			if err := f.Write(context.Background(), token, strings.NewReader("a")); err != nil {
				t.Errorf("write %d: %v", token, err)
			}
		}
		return
	}
	dir, err := os.MkdirTemp("", "fence")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "test")
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(binary, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o777)
	cmd := exec.Command(binary, "-test.run=^TestReadOnlyFile$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOLDFAST_TEST_DIR="+dir)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534,
			Gid: 65534}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("broken") }

// TestFileOfAPanic sees that a reader that panics leaves no file behind.
func TestFileOfAPanic(t *testing.T) {
	f := fence.File{Path: filepath.Join(t.TempDir(), "f")}
	func() {
		defer func() { recover() }()
		f.Write(t.Context(), 1, panicking{})
	}()
	if left, _ := filepath.Glob(f.Path + "*.tmp"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestFileByASymlink writes one file by two names.
func TestFileByASymlink(t *testing.T) {
	dir := t.TempDir()
	data, link := filepath.Join(dir, "data"), filepath.Join(dir, "link")
	if err := (fence.File{Path: data}).Write(t.Context(), 9,
		strings.NewReader("newer")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("data", link); err != nil {
		t.Fatal(err)
	}
	err := fence.File{Path: link}.Write(t.Context(), 5, strings.NewReader("older"))
	text, _ := os.ReadFile(link)
	var stale *fence.StaleError
	if !errors.As(err, &stale) || stale.Resource != link || string(text) != "newer" {
		t.Errorf(
			"Write by a symbolic link with token 5 after 9 = %v; want a StaleError that names the link; readers of the link get %q",
			err, text)
	}
	if err := (fence.File{Path: link}).Write(t.Context(), 10,
		strings.NewReader("newest")); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is no link any more: %v, %v", info, err)
	}
	if text, err := os.ReadFile(data); string(text) != "newest" {
		t.Errorf("the file has %q, %v", text, err)
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink("nothing", dangling); err != nil {
		t.Fatal(err)
	}
	if err := (fence.File{Path: dangling}).Write(t.Context(), 5,
		strings.NewReader("a")); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("Write by a link to what is not there = %v; want ErrInvalid", err)
	}
}

// Of two first writers at once, one finds no file, and then the other's.
func TestFileThatAnotherHasJustMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if place, err := fence.Place(path); place != path || err != nil {
		t.Errorf("the place of a file that was made meanwhile: %q, %v; want %q", place, err, path)
	}
}
