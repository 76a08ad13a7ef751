package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// unversioned is the version of a build from a checkout without git's. Others in this test are as
// long, since they are written in its place.
const unversioned = "(devel)"

// mixed is how two versions are refused.
const mixed = "%s is version %s, says HOLDFAST_FENCE_CALLER, and %s is version %s; " +
	"install both in one version"

// inVersion returns a copy of a program that is as if it had been built in that version.
func inVersion(t *testing.T, program, version string) (path string) {
	t.Helper()
	if version == unversioned {
		return program
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	const module = "\tgithub.com/holdfast-go/holdfast/cmd/holdfast\t"
	if !bytes.Contains(text, []byte(module+unversioned)) || len(version) != len(unversioned) {
		t.Fatalf("%s does not say that its version is %s, or %s is longer or shorter", program,
			unversioned, version)
	}
	text = bytes.ReplaceAll(text, []byte(module+unversioned), []byte(module+version))
	path = program + "-" + version
	writeProgram(t, path, string(text), 0o700)
	t.Cleanup(func() { os.Remove(path) })
	return path
}

// TestFenceVersions: two versions that were installed at different times are not mixed, wherever
// the other one was found. One without a version goes with any.
func TestFenceVersions(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{} // by name and version
	for _, name := range []string{"holdfast", "holdfast-fence"} {
		built := filepath.Join(filepath.Dir(holdfastPath), name)
		for _, version := range []string{unversioned, "v1.22.3", "v1.22.4"} {
			programs[name+version] = inVersion(t, built, version)
		}
	}
	for _, test := range []struct {
		own, other string
		refused    bool
	}{
		{"v1.22.3", "v1.22.3", false},
		{"v1.22.4", "v1.22.3", true},
		{"v1.22.3", "v1.22.4", true},
		{unversioned, "v1.22.3", false},
		{"v1.22.3", unversioned, false},
	} {
		for _, place := range []string{"beside", "PATH"} {
			dir := t.TempDir()
			own, other := filepath.Join(dir, "holdfast"), filepath.Join(dir, "holdfast-fence")
			path := "/no/such"
			if place == "PATH" {
				path = t.TempDir()
				other = filepath.Join(path, "holdfast-fence")
			}
			if err := errors.Join(os.Link(programs["holdfast"+test.own], own),
				os.Link(programs["holdfast-fence"+test.other], other)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(own, "fence", "show", "ledger")
			cmd.Env = []string{"HOLDFAST_FENCE_URL=sqlite:///no/such/file", "PATH=" + path}
			var errs bytes.Buffer
			cmd.Stderr = &errs
			code := exitCode(t, cmd)
			want := "sqlite:///no/such/file: the guard was never set up here: call holdfast fence init first"
			if test.refused {
				want = fmt.Sprintf(mixed, own, test.own, other, test.other)
			}
			want = "holdfast: " + want + "\n"
			if code != 69 || errs.String() != want {
				t.Errorf("%s with %s, %s: exit code %d, stderr %s; want 69, %s", test.own,
					test.other, place, code, &errs, want)
			}
		}
	}
	// An error that says to install the other program does not also say to install a newer one.
	alone := filepath.Join(t.TempDir(), "holdfast")
	if err := os.Link(programs["holdfast"+"v1.22.3"], alone); err != nil {
		t.Fatal(err)
	}
	missing := exec.Command(alone, "fence", "show", "--on=sqlite:///no/such/file", "ledger")
	missing.Env = []string{"PATH=/no/such"}
	if out, err := missing.CombinedOutput(); err == nil ||
		!bytes.HasSuffix(out, []byte("/holdfast-fence@v1.22.3\n")) {
		t.Errorf("%v: %s; want it to end with the version", err, out)
	}
	// A later holdfast may say what this one does not know.
	cmd := exec.Command(programs["holdfast-fence"+"v1.22.3"], "advance", "--later", "ledger")
	cmd.Env = []string{"HOLDFAST_FENCE_URL=later://h", "HOLDFAST_FENCE_CALLER=v1.22.4 /new holdfast"}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	want := fmt.Sprintf("holdfast: "+mixed+"\n", "/new holdfast", "v1.22.4", cmd.Path, "v1.22.3")
	if code := exitCode(t, cmd); code != 69 || errs.String() != want {
		t.Errorf("exit code %d, stderr %s; want 69, %s", code, &errs, want)
	}
	// What holdfast has not set is reported as such, on a line that can be read.
	for _, junk := range []string{"v1.22.4", "\x01\xff", strings.Repeat("x", 1<<16), "v1.22.4 " +
		strings.Repeat("x", 1<<16)} {
		cmd := exec.Command(programs["holdfast-fence"+"v1.22.3"], "show", "ledger")
		cmd.Env = []string{"HOLDFAST_FENCE_URL=sqlite:///no/such", "HOLDFAST_FENCE_CALLER=" + junk}
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 69 || len(out) > 1000 ||
			!bytes.Contains(out, []byte("HOLDFAST_FENCE_CALLER")) {
			t.Errorf("%.20q: %v: %d bytes, %.200q", junk, err, len(out), out)
		}
	}
}
