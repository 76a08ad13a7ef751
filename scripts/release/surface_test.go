package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exporting is the small repository whose root exports what the body says.
func exporting(body string) map[string]string {
	files := small()
	files["locker.go"] = "package holdfast\n\nimport \"context\"\n\nconst Name = \"hello\"\n\n" +
		"type hidden struct{ Count int }\n\nfunc (*hidden) Promoted() {}\n\n" + body + "\n"
	return files
}

const someAPI = `// Opener opens.
type Opener interface {
	Open(ctx context.Context, name string) (err error)
	close()
}

// Box has one.
type Box[T any] struct {
	*hidden
	Open Opener
	size int
}

// Get returns it.
func (b Box[T]) Get(at int) (v T) { return v }

// Put changes it.
func (b *Box[T]) Put(v T) { b.size = 1 }

// New makes one.
func New(name string, more ...int) (*Box[string], error) { return nil, nil }

// Text is text.
type Text = string

// Level is a number.
type Level int`

func TestSurfaceIsWrittenAndHeld(t *testing.T) {
	t.Parallel()
	dir := makeRepository(t, exporting(someAPI))
	if err := checkSurfaces(t.Context(), dir); err == nil {
		t.Error("without the folder the check passed")
	}
	if err := writeSurfaces(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := checkSurfaces(t.Context(), dir); err != nil {
		t.Errorf("what was just written: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "api", "holdfast.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"const Name untyped string = \"hello\"",
		"func New(string, ...int) (*Box[string], error)",
		"type Opener interface", "type Opener interface, Open(context.Context, string) error",
		"type Opener interface, unexported methods",
		"type Box[T any] struct", "type Box struct, Open Opener",
		"type Box struct, unexported fields",
		"method (Box) Get(int) T", "method (*Box) Put(T)", "method (Box) Promoted()",
		"type Text = string", "type Level int",
	} {
		if !strings.Contains(string(data), "pkg holdfast, "+want+"\n") {
			t.Errorf("the surface has no line %q:\n%s", want, data)
		}
	}
	// The command's module has nothing to import.
	if _, err := os.Stat(filepath.Join(dir, "api", "cmd-holdfast.txt")); err == nil {
		t.Error("a module of programs only has a surface")
	}

	for name, change := range map[string]struct{ before, after, want string }{
		"removed":  {"// New makes one.\nfunc New(", "func newBox(", "- pkg holdfast, func New("},
		"added":    {"// Level is", "// Deep is.\nfunc Deep() {}\n\n// Level is", "+ pkg holdfast, func Deep()"},
		"a method": {"Get(at int)", "Get(at int64)", "+ pkg holdfast, method (Box) Get(int64) T"},
	} {
		text := strings.Replace(exporting(someAPI)["locker.go"], change.before, change.after, 1)
		write(t, filepath.Join(dir, "locker.go"), text)
		err := checkSurfaces(t.Context(), dir)
		if err == nil || !strings.Contains(err.Error(), change.want) ||
			!strings.Contains(err.Error(), "make api") {
			t.Errorf("%s: %v, want %q", name, err, change.want)
		}
	}
	// A parameter has another name, which nobody has to write.
	text := strings.Replace(exporting(someAPI)["locker.go"], "New(name", "New(title", 1)
	write(t, filepath.Join(dir, "locker.go"), text)
	if err := checkSurfaces(t.Context(), dir); err != nil {
		t.Errorf("the name of a parameter: %v", err)
	}
	write(t, filepath.Join(dir, "api", "gone.txt"), "pkg holdfast/gone, func Gone()\n")
	if err := checkSurfaces(t.Context(), dir); err == nil ||
		!strings.Contains(err.Error(), "- pkg holdfast/gone, func Gone()") {
		t.Errorf("a file too many: %v", err)
	}
}

func TestVersionSaysWhatChanged(t *testing.T) {
	t.Parallel()
	removed := strings.Replace(someAPI, "func New(", "func newBox(", 1)
	added := someAPI + "\n\n// Deep is new.\nfunc Deep() {}"
	same := someAPI + "\n\nfunc inside() {}"
	for _, c := range []struct {
		name, last, version, body string
		want                      string // of the error; none if empty
	}{
		{"a fix", "v0.2.0", "v0.2.1", same, ""},
		{"a fix after v1", "v1.2.0", "v1.2.1", same, ""},
		{"new in a patch", "v0.2.0", "v0.2.1", added, "v0.3.0 is the least"},
		{"new in a patch after v1", "v1.2.3", "v1.2.4", added, "Deep: added"},
		{"new", "v0.2.0", "v0.3.0", added, ""},
		{"new in a pre-release", "v0.2.0", "v0.3.0-rc.1", added, ""},
		{"new in a pre-release of a patch", "v0.2.0", "v0.2.1-rc.1", added, "v0.3.0 is the least"},
		{"broken in a patch", "v0.2.0", "v0.2.1", removed, "New: removed"},
		{"broken before v1", "v0.2.0", "v0.3.0", removed, ""},
		{"broken by v1 itself", "v0.2.0", "v1.0.0", removed, ""},
		{"broken after v1", "v1.2.0", "v1.3.0", removed, "only another major version"},
		{"broken after a pre-release", "v0.2.0-rc.1", "v0.2.0", removed, ""},
		{"a larger tag of a module counts for nothing", "redishold/v0.1.9", "v0.2.0", removed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			files := exporting(someAPI)
			files["CHANGELOG.md"] = "## " + c.version + "\n\n- All.\n"
			dir := makeRepository(t, files)
			mustGit(t, dir, "tag", c.last)
			write(t, filepath.Join(dir, "locker.go"), exporting(c.body)["locker.go"])
			mustGit(t, dir, "commit", "--quiet", "--all", "--message", "Change it")
			err := tryVersion(t, dir, c.version)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error is %v, want one with %q", err, c.want)
			}
		})
	}
	t.Run("a module that is gone", func(t *testing.T) {
		t.Parallel()
		dir := makeRepository(t, small())
		mustGit(t, dir, "tag", "v0.1.9")
		list := strings.Replace(small()[listName], "released redishold", "internal redishold", 1)
		list = strings.Replace(list, "released cmd/holdfast", "internal cmd/holdfast", 1)
		write(t, filepath.Join(dir, listName), list)
		changelog := filepath.Join(dir, "CHANGELOG.md")
		write(t, changelog, "## v0.1.10\n\n- All.\n")
		mustGit(t, dir, "commit", "--quiet", "--all", "--message", "Keep it")
		err := tryVersion(t, dir, "v0.1.10")
		if err == nil || !strings.Contains(err.Error(), "redishold: is released no longer") {
			t.Errorf("error is %v", err)
		}
	})
}

// tryVersion checks whether the commit can be released as the version, and builds nothing.
func tryVersion(t *testing.T, dir, version string) error {
	t.Helper()
	r := &release{checkout: dir, version: version, temp: t.TempDir()}
	return r.prepare(t.Context())
}
