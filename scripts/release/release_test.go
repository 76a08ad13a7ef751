package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const version = "v0.2.0"

// small is a repository of the same form as this one, in which everything is in order.
func small() map[string]string {
	const licence = "the licence\n"
	goMod := func(dir string, lines ...string) string {
		return "module " + rootPath + dir + "\n\ngo 1.25.0\n\n" + strings.Join(lines, "\n") + "\n"
	}
	const required = "require " + rootPath + " v0.0.0"
	const replaced = "replace " + rootPath + " => ../"
	return map[string]string{
		"CHANGELOG.md":          "## Unreleased\n\n## v0.2.0 - now\n\n- All.\n",
		"LICENSE":               licence,
		"cmd/holdfast/LICENSE":  licence,
		"redishold/LICENSE":     licence,
		listName:                "released .\nreleased cmd/holdfast\nreleased redishold\ninternal bench\n",
		"go.mod":                goMod(""),
		"go.work":               "go 1.25.0\n\nuse (\n\t.\n\t./bench\n\t./cmd/holdfast\n\t./redishold\n)\n",
		"locker.go":             "package holdfast\n\nconst Name = \"hello\"\n",
		"redishold/go.mod":      goMod("/redishold", required, replaced),
		"redishold/open.go":     importing("redishold", "", "const Name = holdfast.Name"),
		"cmd/holdfast/go.mod":   goMod("/cmd/holdfast"),
		"cmd/holdfast/main.go":  importing("main", "/redishold", "func main() {}\n\nvar _ = redishold.Name"),
		"bench/go.mod":          goMod("/bench", required, replaced),
		"bench/bench.go":        importing("bench", "", "const Name = holdfast.Name"),
		"testdata/other/go.mod": "module other\n",
	}
}

// importing is a Go file that imports one module of the repository.
func importing(name, dir, body string) string {
	return "package " + name + "\n\nimport \"" + rootPath + dir + "\"\n\n" + body + "\n"
}

// makeRepository makes a repository of the files, with one commit.
func makeRepository(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, data := range files {
		write(t, filepath.Join(dir, filepath.FromSlash(name)), data)
	}
	mustGit(t, dir, "init", "--quiet", "--initial-branch", "main")
	mustGit(t, dir, "config", "user.name", "A Maintainer")
	mustGit(t, dir, "config", "user.email", "maintainer@example.com")
	mustGit(t, dir, "add", "--all")
	mustGit(t, dir, "commit", "--quiet", "--message", "Begin")
	return dir
}

func write(t *testing.T, name, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mustGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git(t.Context(), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// stateOf is what a release that failed, or was only tried, leaves as it was: references, files and
// the objects of the repository.
func stateOf(t *testing.T, dir string) string {
	t.Helper()
	return strings.Join([]string{
		mustGit(t, dir, "for-each-ref"),
		mustGit(t, dir, "rev-parse", "HEAD"),
		mustGit(t, dir, "symbolic-ref", "HEAD"),
		mustGit(t, dir, "status", "--porcelain"),
		mustGit(t, dir, "count-objects"),
		mustGit(t, dir, "worktree", "list"),
	}, "\n")
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	dir := makeRepository(t, small())
	before := stateOf(t, dir)
	var out strings.Builder
	if err := makeRelease(t.Context(), dir, version, true, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"commit: Release v0.2.0", "-replace " + rootPath,
		"+require " + rootPath + "/redishold v0.2.0", "\tv0.2.0\n",
		"\tredishold/v0.2.0\n\tcmd/holdfast/v0.2.0\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the dry run does not print %q:\n%s", want, out.String())
		}
	}
	if after := stateOf(t, dir); after != before {
		t.Errorf("the dry run changed\n%s\nto\n%s", before, after)
	}
}

func TestReleaseMakesTagsAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := makeRepository(t, small())
	head := mustGit(t, dir, "rev-parse", "main")
	if err := makeRelease(t.Context(), dir, version, false, t.Output()); err != nil {
		t.Fatal(err)
	}
	tags := strings.Fields(mustGit(t, dir, "tag", "--list"))
	if want := "cmd/holdfast/v0.2.0 redishold/v0.2.0 v0.2.0"; strings.Join(tags, " ") != want {
		t.Errorf("tags are %q, want %q", tags, want)
	}
	for _, tag := range tags {
		if parent := mustGit(t, dir, "rev-parse", tag+"^{commit}^"); parent != head {
			t.Errorf("the commit of %s follows %s, want %s", tag, parent, head)
		}
	}
	if main := mustGit(t, dir, "rev-parse", "HEAD"); main != head {
		t.Errorf("HEAD went from %s to %s", head, main)
	}
	if status := mustGit(t, dir, "status", "--porcelain"); status != "" {
		t.Errorf("files changed:\n%s", status)
	}
	for _, name := range []string{"redishold/go.mod", "cmd/holdfast/go.mod"} {
		text := mustGit(t, dir, "show", version+":"+name)
		if strings.Contains(text, "replace") || !strings.Contains(text, rootPath+" v0.2.0") &&
			!strings.Contains(text, rootPath+"/redishold v0.2.0") {
			t.Errorf("%s of the release:\n%s", name, text)
		}
	}
	if text := mustGit(t, dir, "show", version+":bench/go.mod"); !strings.Contains(text,
		"replace") || !strings.Contains(text, rootPath+" v0.2.0") {
		t.Errorf("bench/go.mod of the release:\n%s", text)
	}
	u := newUser(t, dir, version)
	u.run("go", "install", rootPath+"/cmd/holdfast@"+version)
}

func TestReleaseIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		version string // as above if empty
		change  func(files map[string]string)
		commit  func(dir string) // what happens after the commit
		want    string
	}{
		{name: "changed file", want: "not clean", commit: func(dir string) {
			write(t, filepath.Join(dir, "locker.go"), "package holdfast\n")
		}},
		{name: "new file", want: "not clean", commit: func(dir string) {
			write(t, filepath.Join(dir, "new.go"), "package holdfast\n")
		}},
		{name: "no version", version: "1.2.3", want: "is not of the form"},
		{name: "short version", version: "v0.2", want: "is not of the form"},
		{name: "version with metadata", version: "v0.2.0+x", want: "is not of the form"},
		{name: "second major version", version: "v2.0.0", want: "must end with /v2"},
		{name: "same version", want: "not larger than the tag v0.2.0", commit: func(dir string) {
			mustGit(t, dir, "tag", "v0.2.0")
		}},
		{name: "smaller version", want: "not larger than the tag v0.10.0",
			commit: func(dir string) { mustGit(t, dir, "tag", "v0.10.0") }},
		{name: "smaller version of a module", want: "not larger than the tag redishold/v0.3.0",
			commit: func(dir string) { mustGit(t, dir, "tag", "redishold/v0.3.0") }},
		{name: "pre-release after the release", version: "v0.2.0-rc.1",
			want: "not larger than the tag v0.2.0", commit: func(dir string) {
				mustGit(t, dir, "tag", "v0.2.0")
			}},
		{name: "no section in the changelog", want: "is not \"## v0.2.0\"",
			change: set("CHANGELOG.md", "## Unreleased\n\n- All.\n")},
		{name: "older section first", want: "is not \"## v0.2.0\"",
			change: set("CHANGELOG.md", "## v0.1.0\n\n- All.\n\n## v0.2.0\n\n- All.\n")},
		{name: "empty section", want: "has no entry",
			change: set("CHANGELOG.md", "## v0.2.0\n\n## v0.1.0\n\n- All.\n")},
		{name: "entries left behind", want: "1 entries are under Unreleased",
			change: set("CHANGELOG.md", "## Unreleased\n\n- More.\n\n## v0.2.0\n\n- All.\n")},
		{name: "no licence", want: "redishold/LICENSE",
			change: func(files map[string]string) { delete(files, "redishold/LICENSE") }},
		{name: "another licence", want: "cmd/holdfast/LICENSE is not the LICENSE",
			change: set("cmd/holdfast/LICENSE", "another\n")},
		{name: "module not listed", want: "does not list extra",
			change: set("extra/go.mod", "module "+rootPath+"/extra\n")},
		{name: "listed module is gone", want: "which has no go.mod",
			change: func(files map[string]string) { files[listName] += "released gone\n" }},
		{name: "listed twice", want: "redishold is listed twice",
			change: func(files map[string]string) { files[listName] += "internal redishold\n" }},
		{name: "neither released nor internal", want: "is neither",
			change: func(files map[string]string) { files[listName] += "perhaps redishold\n" }},
		{name: "imports what is not released", want: "which is not",
			change: set("redishold/a_test.go", importing("redishold", "/bench",
				"const _ = bench.Name"))},
		{name: "imports in a circle", want: "imports itself",
			change: set("x_test.go", importing("holdfast_test", "/redishold",
				"const _ = redishold.Name"))},
		{name: "another replacement", want: "replaces example.com/x",
			change: func(files map[string]string) {
				files["redishold/go.mod"] += "\nreplace example.com/x => ../x\n"
			}},
		{name: "does not build", want: "redishold does not build by itself",
			change: set("redishold/b.go", "package redishold\n\nvar _ int = \"\"\n")},
		{name: "what a test imports is not required", want: "bench does not build by itself",
			change: set("bench/b_test.go", "package bench\n\nimport _ \"example.com/x\"\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			files := small()
			if c.change != nil {
				c.change(files)
			}
			dir := makeRepository(t, files)
			if c.commit != nil {
				c.commit(dir)
			}
			v := version
			if c.version != "" {
				v = c.version
			}
			before := stateOf(t, dir)
			err := makeRelease(t.Context(), dir, v, false, t.Output())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want one with %q", err, c.want)
			}
			if after := stateOf(t, dir); after != before {
				t.Errorf("a release that failed changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// set is a change of one file.
func set(name, data string) func(map[string]string) {
	return func(files map[string]string) { files[name] = data }
}

// TestTagsAreMadeTogether has one tag in the way of the others.
func TestTagsAreMadeTogether(t *testing.T) {
	t.Parallel()
	dir := makeRepository(t, small())
	// A tag below the one to be made keeps git from making it.
	mustGit(t, dir, "tag", "redishold/v0.2.0/x")
	before := stateOf(t, dir)
	if err := makeRelease(t.Context(), dir, version, false, t.Output()); err == nil {
		t.Error("a release with a tag that cannot be made succeeded")
	}
	if after := mustGit(t, dir, "for-each-ref"); !strings.HasPrefix(before, after+"\n") {
		t.Errorf("the tags are %s, and were %s", after, before)
	}
}
