package hygiene

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systems are what the kernel builds for beside the system that runs the tests: those that have
// their own clock and file locks, and one on which an int has 32 bits.
var systems = []struct{ os, arch string }{
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"freebsd", "amd64"},
	{"linux", "386"},
}

func TestHygieneBuildsForOtherSystems(t *testing.T) {
	for _, system := range systems {
		t.Run(system.os+"/"+system.arch, func(t *testing.T) {
			t.Parallel()
			if err := buildFor(t, ".", system.os, system.arch); err != nil {
				t.Error(err)
			}
		})
	}
}

// buildFor builds all packages of the module in dir. It does so without the workspace, as a user of
// the module has none.
func buildFor(t *testing.T, dir, goos, goarch string) error {
	build := exec.CommandContext(t.Context(), "go", "build", "./...")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOWORK=off")
	out, err := build.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v for %s/%s: %w\n%s", build, goos, goarch, err, out)
	}
	return nil
}

func TestHygieneBuildsForOtherSystemsSelfTest(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/a\n\ngo 1.25.0\n")
	write("a.go", "package a\n")
	for _, system := range systems {
		if err := buildFor(t, dir, system.os, system.arch); err != nil {
			t.Errorf("builds, and yet: %v", err)
		}
	}
	write("a_darwin.go", "package a\n\nvar _ = missingOnDarwin\n")
	write("a_windows.go", "package a\n\nvar _ = missingOnWindows\n")
	write("a_freebsd.go", "package a\n\nvar _ = missingOnFreeBSD\n")
	write("a_linux.go", "package a\n\nvar _ int = 1 << 40 // overflows\n")
	for _, system := range systems {
		err := buildFor(t, dir, system.os, system.arch)
		if err == nil || !strings.Contains(err.Error(), "a_"+system.os+".go") {
			t.Errorf("%s/%s: got %v, want a complaint about a_%s.go", system.os, system.arch,
				err, system.os)
		}
	}
}
