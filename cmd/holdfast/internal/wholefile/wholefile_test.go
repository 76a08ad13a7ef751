package wholefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/wholefile"
)

// only fails the test unless the file is all that is in the folder, with that text and that mode.
func only(t *testing.T, folder, name, text string, mode fs.FileMode) {
	t.Helper()
	all, err := os.ReadDir(folder)
	if err != nil || len(all) != 1 || all[0].Name() != name {
		t.Errorf("in the folder there are %v, %v; want %s", all, err, name)
	}
	path := filepath.Join(folder, name)
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("the file has %q, %v; want %q", got, err, text)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != mode && runtime.GOOS != "windows" { // which has other modes
		t.Errorf("the file has mode %v; want %v", info.Mode(), mode)
	}
}

// TestWrite: a file is made, replaced by another one in one step, and removed, be it below a link
// to a folder.
func TestWrite(t *testing.T) {
	folder, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", filepath.Join(folder, "none")) // it may be another file system
	path := filepath.Join(link, "f")
	if err := wholefile.Write(path, 0o644, []byte("a")); err != nil {
		t.Fatal(err)
	}
	only(t, folder, "f", "a", 0o644)
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := wholefile.Write(path, 0o600, []byte("bb")); err != nil {
		t.Fatal(err)
	}
	only(t, folder, "f", "bb", 0o600)
	text := make([]byte, 9)
	if n, err := reader.Read(text); string(text[:n]) != "a" {
		t.Errorf("who has the file open reads %q, %v: it was not replaced as a whole", text[:n], err)
	}
	for range 2 { // it may be gone already
		if err := wholefile.Remove(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

// TestOnlyFiles: anything else than a file stays as it is, and nothing else is left in its folder.
func TestOnlyFiles(t *testing.T) {
	for kind, makeOne := range map[string]func(path string) error{
		"no regular file": func(path string) error { return os.Mkdir(path, 0o700) },
		"a symbolic link": func(path string) error { return os.Symlink("nothing", path) },
	} {
		folder := t.TempDir()
		path := filepath.Join(folder, "x")
		if err := makeOne(path); err != nil {
			t.Fatal(err)
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		for call, err := range map[string]error{"Check": wholefile.Check(path),
			"Write":  wholefile.Write(path, 0o600, nil),
			"Remove": wholefile.Remove(path)} {
			if err == nil || !strings.Contains(err.Error(), `x" is `+kind+": name a regular file") {
				t.Errorf("%s: %v; want an error about %s", call, err, kind)
			}
		}
		after, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, after) {
			t.Errorf("%s has become %v, %v", kind, after, err)
		}
		if all, err := os.ReadDir(folder); err != nil || len(all) != 1 {
			t.Errorf("in the folder there are %v, %v", all, err)
		}
	}
}

// TestUnknown: what cannot be looked at is not replaced.
func TestUnknown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(file, "x")
	if err := wholefile.Check(below); err == nil || !strings.Contains(err.Error(), "x") {
		t.Errorf("Check below a file: %v", err)
	}
	if err := wholefile.Check(filepath.Join(t.TempDir(), "x")); err != nil {
		t.Errorf("Check of nothing: %v", err)
	}
}

// TestFailureLeavesNothing: if the file cannot be replaced, the one that was to replace it is
// removed.
func TestFailureLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	if err := wholefile.Write("", 0o600, nil); err == nil {
		t.Error("a file without a name is written")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
