package main

import (
	"context"
	"fmt"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
)

// checkCompatible wants the version to say what has changed since the last release, by Semantic
// Versioning: what breaks others raises the first number, and before v1 the second; what is new
// raises the second. Nothing was promised by a pre-release.
func (r *release) checkCompatible(ctx context.Context, tags []string) error {
	last := lastRelease(tags)
	if last == "" {
		return nil
	}
	dir := filepath.Join(r.temp, "last")
	if _, err := git(ctx, r.checkout, "clone", "--quiet", "--shared", "--branch", last, ".",
		dir); err != nil {
		return err
	}
	before, err := readModules(dir)
	if err != nil {
		return fmt.Errorf("the release %s: %w", last, err)
	}
	old, err := loadSurfaces(ctx, dir, before)
	if err != nil {
		return fmt.Errorf("the release %s: %w", last, err)
	}
	now, err := loadSurfaces(ctx, r.clone(), r.modules)
	if err != nil {
		return err
	}
	breaking, added := compare(before, r.modules, old, now)
	switch needed := neededVersion(last, breaking, added); {
	case needed == "":
		return fmt.Errorf("%s breaks users of %s, which only another major version may:\n\t%s",
			r.version, last, strings.Join(breaking, "\n\t"))
	case semver.Compare(strings.TrimSuffix(r.version, semver.Prerelease(r.version)), needed) < 0:
		return fmt.Errorf("%s says less than what has changed since %s; %s is the least:\n\t%s",
			r.version, last, needed, strings.Join(append(breaking, added...), "\n\t"))
	}
	return nil
}

// lastRelease returns the largest version among the tags of the root that is no pre-release, or "".
func lastRelease(tags []string) (last string) {
	for _, tag := range tags {
		if semver.IsValid(tag) && semver.Prerelease(tag) == "" &&
			semver.Compare(tag, last) > 0 {
			last = tag
		}
	}
	return last
}

// neededVersion returns the least version that may follow the last one, or "" for another major
// version.
func neededVersion(last string, breaking, added []string) string {
	numbers := strings.Split(strings.TrimPrefix(last, "v"), ".")
	minor, err := strconv.Atoi(numbers[1])
	switch {
	case err != nil:
		return "" // no tag of ours
	case len(breaking) > 0 && numbers[0] != "0":
		return ""
	case len(breaking) > 0 || len(added) > 0:
		return fmt.Sprintf("v%s.%d.0", numbers[0], minor+1)
	}
	return last
}

// compare says what is different between the modules of two releases.
func compare(before, after []*repoModule,
	old, now map[*repoModule][]*types.Package) (breaking, added []string) {
	for _, m := range before {
		if other := find(after, m.path()); m.released && (other == nil || !other.released) {
			breaking = append(breaking, m.path()+": is released no longer")
		}
	}
	for _, m := range after {
		if !m.released {
			continue
		}
		was := find(before, m.path())
		if was == nil || !was.released {
			added = append(added, m.path()+": is released for the first time")
			continue
		}
		report := apidiff.ModuleChanges(&apidiff.Module{Path: m.path(), Packages: old[was]},
			&apidiff.Module{Path: m.path(), Packages: now[m]})
		for _, change := range report.Changes {
			text := m.path() + ": " + change.Message
			if change.Compatible {
				added = append(added, text)
			} else {
				breaking = append(breaking, text)
			}
		}
	}
	slices.Sort(breaking)
	slices.Sort(added)
	return breaking, added
}
