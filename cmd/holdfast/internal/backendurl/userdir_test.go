//go:build unix

package backendurl_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// userDirs sets both places where the directory can be, and returns where it is to be in each.
func userDirs(t *testing.T) (runtime, temporary string) {
	t.Helper()
	runtime, temporary = t.TempDir(), t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	t.Setenv("TMPDIR", temporary)
	return filepath.Join(runtime, "holdfast"), filepath.Join(temporary, fmt.Sprintf("holdfast-%d", os.Geteuid()))
}

func TestUserDir(t *testing.T) {
	runtime, temporary := userDirs(t)
	for range 2 { // made, and found
		expectDir(t, runtime)
	}
	for _, unusable := range []string{"", "relative", filepath.Join(runtime, "missing"), os.DevNull} {
		t.Setenv("XDG_RUNTIME_DIR", unusable)
		for range 2 {
			expectDir(t, temporary)
		}
	}
	for _, dir := range []string{runtime, temporary} {
		if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}

func expectDir(t *testing.T, want string) {
	t.Helper()
	if got, err := backendurl.UserDir(); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestUserDirThatIsNotOurs(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"open to others":  func(dir string) error { return os.Mkdir(dir, 0o700) },
		"a file":          func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a link":          func(dir string) error { return os.Symlink(t.TempDir(), dir) },
		"a dangling link": func(dir string) error { return os.Symlink("missing", dir) },
	} {
		t.Run(name, func(t *testing.T) {
			_, dir := userDirs(t)
			t.Setenv("XDG_RUNTIME_DIR", "")
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			if name == "open to others" {
				if err := os.Chmod(dir, 0o770); err != nil { // Mkdir heeds the umask
					t.Fatal(err)
				}
			}
			got, err := backendurl.UserDir()
			if err == nil {
				t.Fatalf("got %q", got)
			}
			if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--on") {
				t.Errorf("got %q, want the directory and what to do", err)
			}
		})
	}
}
