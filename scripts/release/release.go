package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
)

// release is a release in the making. All of it happens in a clone. The checkout gets the tags, and
// with them the commit, in one step at the end.
type release struct {
	checkout string
	version  string
	temp     string // has the clone, the modules as a proxy would have them, and their cache
	modules  []*repoModule
}

func (r *release) clone() string { return filepath.Join(r.temp, "clone") }

func (r *release) proxy() fileProxy { return fileProxy(filepath.Join(r.temp, "proxy")) }

// makeRelease checks the checkout, and releases its commit as the version. A dry run does all but
// the last step. What it does is written to out.
func makeRelease(ctx context.Context, checkout, version string, dryRun bool, out io.Writer) error {
	temp, err := os.MkdirTemp("", "holdfast-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) //nolint:errcheck // a folder of temporary files
	r := &release{checkout: checkout, version: version, temp: temp}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := r.commit(ctx); err != nil {
		return err
	}
	if err := r.build(ctx); err != nil {
		return err
	}
	changes, err := git(ctx, r.clone(), "show", "--format=commit: %s", "--unified=1", "HEAD", "--",
		":(glob)**/go.mod", ":(glob)**/go.sum")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\n", changes)
	if dryRun {
		fmt.Fprintf(out, "dry run: nothing was changed; these tags would be made:\n\t%s\n",
			strings.Join(r.tags(), "\n\t"))
		return nil
	}
	if err := r.publish(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "tagged; now publish all tags together:\n\tgit push --atomic origin %s\n",
		strings.Join(r.tags(), " "))
	return nil
}

// prepare clones the checkout and checks whether its commit can be released.
func (r *release) prepare(ctx context.Context) error {
	if err := checkClean(ctx, r.checkout); err != nil {
		return err
	}
	tags, err := git(ctx, r.checkout, "tag", "--list")
	if err != nil {
		return err
	}
	if err := checkVersion(r.version, strings.Fields(tags)); err != nil {
		return err
	}
	if err := clone(ctx, r.checkout, r.clone()); err != nil {
		return err
	}
	if r.modules, err = readModules(r.clone()); err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(r.clone(), "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if err := checkChangelog(string(changelog), r.version); err != nil {
		return err
	}
	if err := checkLicences(r.clone(), r.modules); err != nil {
		return err
	}
	return r.checkCompatible(ctx, strings.Fields(tags))
}

// commit makes the commit of the release in the clone.
func (r *release) commit(ctx context.Context) error {
	sums := make(map[string]sum)
	for _, m := range r.modules {
		if err := edit(r.clone(), m, r.modules, r.version, sums); err != nil {
			return err
		}
		if !m.released {
			continue
		}
		s, err := r.proxy().addDir(module.Version{Path: m.path(), Version: r.version},
			filepath.Join(r.clone(), filepath.FromSlash(m.dir)))
		if err != nil {
			return err
		}
		sums[m.path()] = s
	}
	if _, err := git(ctx, r.clone(), "add", "--all"); err != nil {
		return err
	}
	// A repository of one module has nothing to change.
	_, err := git(ctx, r.clone(), "commit", "--quiet", "--allow-empty", "--message",
		"Release "+r.version)
	return err
}

// build builds what was committed, and wants it not to change by that.
func (r *release) build(ctx context.Context) error {
	env, err := outside(ctx, r.proxy(), filepath.Join(r.temp, "modules"), "-mod=readonly")
	if err != nil {
		return err
	}
	if err := buildAll(ctx, r.clone(), r.modules, env); err != nil {
		return err
	}
	return checkClean(ctx, r.clone())
}

// tags returns the names of the release's tags, that of the root first.
func (r *release) tags() (tags []string) {
	for _, m := range r.modules {
		if m.released {
			tags = append(tags, m.tag(r.version))
		}
	}
	return tags
}

// publish makes the tags and hands them over to the checkout, all or none.
func (r *release) publish(ctx context.Context) error {
	args := []string{"fetch", "--quiet", "--atomic", "--no-tags", "--no-write-fetch-head",
		r.clone()}
	for _, tag := range r.tags() {
		if _, err := git(ctx, r.clone(), "tag", "--annotate", "--message", "Holdfast "+r.version,
			tag); err != nil {
			return err
		}
		args = append(args, "refs/tags/"+tag+":refs/tags/"+tag)
	}
	_, err := git(ctx, r.checkout, args...)
	return err
}
