//go:build whole

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// releaseWhole releases the commit that is checked out, in a repository of its own, dir.
func releaseWhole(t *testing.T) (root, dir string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "repository")
	if err := clone(t.Context(), root, dir); err != nil {
		t.Fatal(err)
	}
	mustGit(t, dir, "checkout", "--quiet", "-B", "main")
	for _, tag := range strings.Fields(mustGit(t, dir, "tag", "--list")) {
		// The version here may be smaller than that of a release.
		mustGit(t, dir, "tag", "--delete", tag)
	}
	changelog := filepath.Join(dir, "CHANGELOG.md")
	text, err := os.ReadFile(changelog)
	if err != nil {
		t.Fatal(err)
	}
	closed := strings.Replace(string(text), "## Unreleased", "## Unreleased\n\n## "+version, 1)
	write(t, changelog, closed)
	mustGit(t, dir, "commit", "--quiet", "--all", "--message", "Close the changelog")
	if err := makeRelease(t.Context(), dir, version, false, t.Output()); err != nil {
		t.Fatal(err)
	}
	return root, dir
}

// TestOthersCanUseTheRelease releases the commit that is checked out, and uses it as somebody
// outside does who has the oldest Go: gets every module, one after the other, builds and runs a
// program that imports them all, builds all packages, and installs and runs the command. It is not
// part of go test, as it builds every module outside of the workspace. The release itself is built
// with the Go of this machine.
func TestOthersCanUseTheRelease(t *testing.T) {
	root, dir := releaseWhole(t)
	u := newUser(t, dir, version)
	oldest := "go" + oldestGo(t, root)
	// Without a suffix: a module that needs a newer one is refused.
	u.env = append(u.env, "GOTOOLCHAIN="+oldest)
	if out := u.run("go", "version"); !strings.Contains(out, " "+oldest+" ") {
		t.Fatalf("the user has %s, want %s", out, oldest)
	}
	var program strings.Builder
	program.WriteString("package main\n\nimport (\n")
	for _, path := range []string{"context", "fmt", "log", rootPath, rootPath + "/memhold"} {
		program.WriteString("\t\"" + path + "\"\n")
	}
	for _, m := range releasedModules(t, dir) {
		u.run("go", "get", m.path()+"@"+version)
		if m.dir != "." && m.dir != "cmd/holdfast" {
			program.WriteString("\t_ \"" + m.path() + "\"\n")
		}
	}
	program.WriteString(")\n\nfunc main() {\n" + firstProgram(t, root) + "}\n")
	write(t, filepath.Join(u.dir, "main.go"), program.String())
	// Getting a module may raise what an earlier one needs, whose checksum is then missing, as are
	// those of what only other packages of the modules import.
	if out := u.run("go", "run", "-mod=mod", "."); out != "paying invoice/42" {
		t.Errorf("the README's program printed %q", out)
	}
	u.run("go", "build", "-mod=mod", rootPath+"/...")
	// Vet compiles the tests as well, up to their types.
	u.run("go", append([]string{"vet", "-mod=mod"}, u.packages(rootPath)...)...)

	u.run("go", "install", rootPath+"/cmd/holdfast@"+version)
	command := filepath.Join(u.bin, "holdfast")
	if out := u.run(command, "version"); !strings.Contains(out, version+" "+oldest+" ") {
		t.Errorf("the command that was installed says %q, want %s and %s", out, version, oldest)
	}
	if out := u.run(command, "run", "--on", "file://"+t.TempDir(), "nightly", "--", "echo",
		"hello"); out != "hello" {
		t.Errorf("the command that was installed printed %q", out)
	}
}

// packages are the packages of a module, as the user finds them.
func (u *user) packages(module string) []string {
	u.t.Helper()
	return strings.Fields(u.run("go", "list", "-mod=mod", "-f",
		`{{if eq .Module.Path "`+module+`"}}{{.ImportPath}}{{end}}`, module+"/..."))
}

// firstProgram is the body of the program that the README begins with.
func firstProgram(t *testing.T, root string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	const begin = "backend := memhold.New()"
	_, body, found := strings.Cut(string(text), "```go\n"+begin)
	if !found {
		t.Fatalf("the README has no block of Go that begins with %q", begin)
	}
	body, _, _ = strings.Cut(body, "```")
	return begin + body + "if err != nil {\n\tlog.Fatal(err)\n}\n"
}

// oldestGo is the version of Go that the kernel asks for at least.
func oldestGo(t *testing.T, root string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.ParseLax("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file.Go.Version
}
