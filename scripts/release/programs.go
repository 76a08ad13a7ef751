package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/module"
)

// programsModule has the programs that a release brings as binaries.
const programsModule = rootPath + "/cmd/holdfast"

// makePrograms builds the programs for each of the platforms, which are of the form linux/amd64,
// into a folder of dir each, linux_amd64. It builds what go install builds of that version, so that
// others get the same bytes by it. The version is one with tags, or empty: then that of the commit
// that is checked out, as if it had been released. The version, without its v, and the time of the
// commit in seconds are written into the files version and epoch of dir.
func makePrograms(ctx context.Context, checkout, version, dir string, platforms []string) error {
	temp, err := os.MkdirTemp("", "holdfast-programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) //nolint:errcheck // a folder of temporary files
	r := &release{checkout: checkout, version: version, temp: temp}
	epoch, err := r.serve(ctx)
	if err != nil {
		return err
	}
	env, err := outside(ctx, r.proxy(), filepath.Join(temp, "modules"), "")
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range platforms {
		if err := r.install(ctx, env, p, dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
		}
	}
	return errors.Join(append(errs,
		os.WriteFile(filepath.Join(dir, "version"), []byte(r.version[1:]+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "epoch"), []byte(epoch+"\n"), 0o644))...)
}

// serve puts the modules of the version into the proxy. It returns the time of the commit that was
// released, in seconds.
func (r *release) serve(ctx context.Context) (epoch string, err error) {
	if err := checkClean(ctx, r.checkout); err != nil {
		return "", err
	}
	commit := "HEAD"
	if r.version != "" {
		commit = "refs/tags/" + r.version + "^{commit}"
	}
	if err := clone(ctx, r.checkout, r.clone()); err != nil {
		return "", err
	}
	// The clone has no tags, but it has what they name.
	if commit, err = git(ctx, r.checkout, "rev-parse", "--verify", commit); err != nil {
		return "", err
	}
	if _, err := git(ctx, r.clone(), "checkout", "--quiet", "--detach", commit); err != nil {
		return "", err
	}
	if r.modules, err = readModules(r.clone()); err != nil {
		return "", err
	}
	if epoch, err = git(ctx, r.clone(), "log", "-1", "--format=%ct"); err != nil {
		return "", err
	}
	if r.version == "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return "", err
		}
		r.version = module.PseudoVersion("v0", "", time.Unix(seconds, 0).UTC(), commit[:12])
		return epoch, r.commit(ctx)
	}
	for _, m := range r.modules {
		if !m.released {
			continue
		}
		if _, err := r.proxy().addDir(module.Version{Path: m.path(), Version: r.version},
			filepath.Join(r.clone(), filepath.FromSlash(m.dir))); err != nil {
			return "", err
		}
	}
	return epoch, nil
}

// install builds the programs for a platform into its folder of dir.
func (r *release) install(ctx context.Context, env []string, platform, dir string) error {
	system, processor, found := strings.Cut(platform, "/")
	if !found {
		return errors.New("a platform is of the form linux/amd64")
	}
	// GOBIN cannot be set for another system, and then the programs are in a folder below.
	path := filepath.Join(r.temp, "path", system+"_"+processor)
	cmd := exec.CommandContext(ctx, "go", "install", "-ldflags=-s -w",
		programsModule+"/...@"+r.version)
	cmd.Dir = r.temp
	cmd.Env = append(env, "GOPATH="+path, "GOBIN=", "GOOS="+system, "GOARCH="+processor,
		// What else changes the bytes, and is the machine's own.
		"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off")
	if _, err := output(cmd); err != nil {
		return err
	}
	built := filepath.Join(path, "bin")
	if system != runtime.GOOS || processor != runtime.GOARCH {
		built = filepath.Join(built, system+"_"+processor)
	}
	to := filepath.Join(dir, system+"_"+processor)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	// Not renamed: dir may be on another file system.
	return os.CopyFS(to, os.DirFS(built))
}
