package main

import (
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// user is somebody outside of the repository, with an empty module, who gets modules from a proxy.
type user struct {
	t   *testing.T
	dir string
	bin string
	env []string
}

// newUser makes a user of the proxy that serves the tags of the repository in dir.
func newUser(t *testing.T, dir, version string) *user {
	t.Helper()
	temp := t.TempDir()
	u := &user{t: t, dir: filepath.Join(temp, "program"), bin: filepath.Join(temp, "bin")}
	env, err := outside(t.Context(), proxyOf(t, dir, version), filepath.Join(temp, "modules"), "")
	if err != nil {
		t.Fatal(err)
	}
	u.env = append(env, "GOBIN="+u.bin, "GOPATH="+filepath.Join(temp, "path"))
	write(t, filepath.Join(u.dir, "go.mod"), "module example.com/program\n\ngo 1.25.0\n")
	return u
}

// run runs a command in the user's module and returns what it printed.
func (u *user) run(name string, args ...string) string {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), name, args...)
	cmd.Dir, cmd.Env = u.dir, u.env
	out, err := output(cmd)
	if err != nil {
		u.t.Fatal(err)
	}
	return out
}

// proxyOf makes the zips of all released modules from the tags of a repository, as a proxy does.
func proxyOf(t *testing.T, dir, version string) fileProxy {
	t.Helper()
	proxy := fileProxy(t.TempDir())
	for _, m := range releasedModules(t, dir) {
		goMod := mustGit(t, dir, "show", m.tag(version)+":./"+m.dir+"/go.mod") + "\n"
		v := module.Version{Path: m.path(), Version: version}
		subdir := m.dir
		if subdir == "." {
			subdir = ""
		}
		_, err := proxy.add(v, []byte(goMod), func(w io.Writer) error {
			return zip.CreateFromVCS(w, v, dir, m.tag(version), subdir)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return proxy
}

func releasedModules(t *testing.T, dir string) (released []*repoModule) {
	t.Helper()
	modules, err := readModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		if m.released {
			released = append(released, m)
		}
	}
	return released
}
