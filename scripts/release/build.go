package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// outside returns the environment of a go command that knows the folder's modules, and no
// workspace. Its cache has none of this repository's modules at first: a version that is not
// released yet must not stay in that of the machine.
func outside(ctx context.Context, proxy fileProxy, cache, flags string) ([]string, error) {
	settings, err := output(exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY"))
	if err != nil {
		return nil, err
	}
	machine, upstream, _ := strings.Cut(settings, "\n")
	if err := mirror(machine, cache); err != nil {
		return nil, err
	}
	return append(os.Environ(),
		"GOWORK=off",
		// Not GONOPROXY=none: whatever it names, the go command then looks at what needs no proxy
		// first, finds the root in the cache, and says that a module below it is no package there.
		"GOMODCACHE="+cache,
		"GOPROXY=file://"+filepath.ToSlash(string(proxy))+","+upstream,
		"GONOSUMDB="+rootPath, "GONOPROXY=", "GOPRIVATE=",
		// The path of the cache changes from run to run. Without it in what was built, that is
		// found again.
		"GOFLAGS=-trimpath -modcacherw -buildvcs=false "+flags,
	), nil
}

// mirror makes a cache of modules that has those of another one, by links, but for the modules of
// this repository.
func mirror(machine, cache string) error {
	host, owner, _ := strings.Cut(rootPath, "/")
	owner, _, _ = strings.Cut(owner, "/")
	for _, level := range []struct{ dir, except string }{
		{".", host}, {host, owner}, {"cache/download", host},
		{"cache/download/" + host, owner},
	} {
		if err := os.MkdirAll(filepath.Join(cache, level.dir), 0o755); err != nil {
			return err
		}
		entries, err := os.ReadDir(filepath.Join(machine, level.dir))
		if errors.Is(err, os.ErrNotExist) {
			continue // nothing was fetched yet
		}
		if err != nil {
			return err
		}
		for _, entry := range entries {
			name := filepath.Join(level.dir, entry.Name())
			if entry.Name() == level.except || name == "cache" {
				continue
			}
			err := os.Symlink(filepath.Join(machine, name), filepath.Join(cache, name))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// buildAll wants every module of the commit in root to have all that its packages and tests import
// outside of the workspace, with nothing added to its go.mod and go.sum. A released module is
// resolved in the environment env, where its siblings come from the proxy. Then it is built with
// their directories in their place, so that the machine's cache serves the rest.
func buildAll(ctx context.Context, root string, modules []*repoModule, env []string) error {
	var errs []error
	for _, m := range modules {
		if err := buildOne(ctx, root, m, modules, env); err != nil {
			errs = append(errs, fmt.Errorf("%s does not build by itself: %w", m.path(), err))
		}
	}
	return errors.Join(errs...)
}

func buildOne(ctx context.Context, root string, m *repoModule, modules []*repoModule,
	env []string) error {
	local := append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly -buildvcs=false")
	if !m.released {
		env = local
	}
	run := func(env []string, args ...string) error {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Env = filepath.Join(root, filepath.FromSlash(m.dir)), env
		_, err := output(cmd)
		return err
	}
	if err := run(env, "list", "-deps", "-test", "./..."); err != nil || !m.released {
		return err
	}
	name, err := withDirectories(root, m, modules)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(name)) //nolint:errcheck // temporary files
	return run(local, "build", "-o", os.DevNull, "-modfile="+name, "./...")
}

// withDirectories writes a go.mod, with its go.sum, which has the directories of a module's
// siblings in their place.
func withDirectories(root string, m *repoModule, modules []*repoModule) (name string, err error) {
	dir := filepath.Join(root, filepath.FromSlash(m.dir))
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	file, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		return "", err
	}
	for _, p := range below(m, modules) {
		sibling := filepath.Join(root, filepath.FromSlash(find(modules, p).dir))
		if err := file.AddReplace(p, "", sibling, ""); err != nil {
			return "", err
		}
	}
	if data, err = file.Format(); err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	temp, err := os.MkdirTemp("", "holdfast-release-")
	if err != nil {
		return "", err
	}
	name = filepath.Join(temp, "go.mod")
	return name, errors.Join(os.WriteFile(name, data, 0o644),
		os.WriteFile(filepath.Join(temp, "go.sum"), sums, 0o644))
}
