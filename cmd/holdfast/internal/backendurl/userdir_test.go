//go:build unix

package backendurl_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/driver"
)

// userDir makes UserDir work below a directory of the test, and returns the path to expect.
func userDir(t *testing.T) string {
	t.Helper()
	temporary := t.TempDir()
	backendurl.SetTemporary(t, temporary)
	return filepath.Join(temporary, fmt.Sprintf("holdfast-%d", os.Geteuid()))
}

// TestUserDir: the directory does not depend on the environment, which differs between a login
// shell and a cron job.
func TestUserDir(t *testing.T) {
	dir := userDir(t)
	for _, environment := range []string{"", t.TempDir()} {
		t.Setenv("XDG_RUNTIME_DIR", environment)
		t.Setenv("TMPDIR", environment)
		for range 2 { // UserDir makes it, and then finds it
			if got, err := backendurl.UserDir(); err != nil || got != dir {
				t.Errorf("got %q, %v, want %q", got, err, dir)
			}
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("%s: %v, %v", dir, info.Mode(), err)
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
			dir := userDir(t)
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			if name == "open to others" {
				if err := os.Chmod(dir, 0o770); err != nil { // Mkdir applies the umask
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

// TestSameDirectory: all spellings of a directory lead to the same locks.
func TestSameDirectory(t *testing.T) {
	dir := userDir(t)
	a, err := backendurl.Parse("file:")
	if err != nil {
		t.Fatal(err)
	}
	first, err := a.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := backendurl.Dir(dir).Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	claim := driver.Claim{Key: "k", Owner: driver.NewOwner("/h/1/"), TTL: time.Minute}
	if got, err := first.Acquire(t.Context(), claim); err != nil || got.State != driver.Held {
		t.Fatal(got, err)
	}
	defer first.Release(context.WithoutCancel(t.Context()), claim)
	other := claim
	other.Owner = driver.NewOwner("/h/2/")
	if got, err := second.Acquire(t.Context(), other); err != nil || got.State != driver.Busy {
		t.Errorf("got %v, %v, want busy", got, err)
	}
}
