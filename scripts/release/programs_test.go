package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestProgramsAreTheSameElsewhere: who builds a version anywhere gets the same bytes, by
// makePrograms and by the command that RELEASING.md has, and they say which version they are.
func TestProgramsAreTheSameElsewhere(t *testing.T) {
	t.Parallel()
	files := small()
	files["cmd/holdfast/main.go"] = importing("main", "/redishold", "var _ = redishold.Name\n\n"+
		"func main() { info, _ := debug.ReadBuildInfo(); println(info.Main.Version) }")
	files["cmd/holdfast/main.go"] = string(bytes.Replace([]byte(files["cmd/holdfast/main.go"]),
		[]byte("import "), []byte("import \"runtime/debug\"\nimport "), 1))
	files["cmd/holdfast/holdfast-more/main.go"] = "package main\n\nfunc main() {}\n"
	dir := makeRepository(t, files)
	platform, below := runtime.GOOS+"/"+runtime.GOARCH, runtime.GOOS+"_"+runtime.GOARCH
	build := func(checkout, version string) (out string) {
		t.Helper()
		out = filepath.Join(t.TempDir(), "out")
		err := makePrograms(t.Context(), checkout, version, out, []string{platform})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	says := func(out string) string {
		t.Helper()
		u := user{t: t, dir: out, env: os.Environ()}
		return u.run("sh", "-c", filepath.Join(out, below, "holdfast")+" 2>&1")
	}

	before := build(dir, "")
	if got := says(before); !regexp.MustCompile(`^v0\.0\.0-\d{14}-[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("without a tag the program says it is %q", got)
	}
	err := makePrograms(t.Context(), dir, version, t.TempDir(), []string{platform})
	if err == nil {
		t.Error("programs of a version without tags were built")
	}
	if err := makeRelease(t.Context(), dir, version, false, t.Output()); err != nil {
		t.Fatal(err)
	}
	// Later commits do not count.
	write(t, filepath.Join(dir, "locker.go"), "package holdfast\n\nconst Name = \"later\"\n")
	mustGit(t, dir, "commit", "--quiet", "--all", "--message", "Go on")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	mustGit(t, dir, "clone", "--quiet", ".", elsewhere)

	first, second := build(dir, version), build(elsewhere, version)
	if got := says(first); got != version {
		t.Errorf("the program says it is %q", got)
	}
	text, err := os.ReadFile(filepath.Join(first, "version"))
	if err != nil || string(text) != "0.2.0\n" {
		t.Errorf("the file version has %q, %v", text, err)
	}
	const flags = "-trimpath -ldflags='-s -w' \\\n  " + programsModule + "/...@"
	if text, err := os.ReadFile("../../RELEASING.md"); err != nil ||
		!strings.Contains(string(text), "CGO_ENABLED=0 go install "+flags) {
		t.Errorf("the document does not say %q: %v", flags, err)
	}
	u := newUser(t, dir, version)
	// The flags are those of the document alone.
	u.env = append(u.env, "CGO_ENABLED=0", "GOFLAGS=-modcacherw")
	u.run("go", "install", "-trimpath", "-ldflags=-s -w", programsModule+"/...@"+version)
	for _, name := range []string{"holdfast", "holdfast-more"} {
		program := func(dir string) []byte {
			t.Helper()
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		want := program(filepath.Join(first, below))
		if !bytes.Equal(program(filepath.Join(second, below)), want) {
			t.Errorf("%s has other bytes when it is built elsewhere", name)
		}
		if !bytes.Equal(program(u.bin), want) {
			t.Errorf("%s has other bytes when it is installed by go install", name)
		}
	}
}
