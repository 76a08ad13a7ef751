//go:build unix

package versitytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFindWhereGoInstalls has GOPATH where go env -w puts it, as the script may find it.
func TestFindWhereGoInstalls(t *testing.T) {
	command, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	want := filepath.Join(dir, "bin", "versitygw")
	settings := filepath.Join(dir, "env")
	for _, err := range []error{
		os.Mkdir(filepath.Dir(want), 0o700),
		os.WriteFile(want, nil, 0o700),
		os.WriteFile(settings, []byte("GOPATH="+dir+"\n"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Dir(command))
	t.Setenv("GOPATH", "")
	t.Setenv("GOENV", settings)
	if path, err := find(); path != want || err != nil {
		t.Errorf("find() = %q, %v; want %q", path, err, want)
	}
}
