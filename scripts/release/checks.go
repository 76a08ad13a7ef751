package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

// checkVersion wants a version in full that is larger than those of all tags: go get takes the
// largest, so a smaller one would reach nobody.
func checkVersion(version string, tags []string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("version %q is not of the form v1.2.3 or v1.2.3-rc.1", version)
	}
	if major := semver.Major(version); major != "v0" && major != "v1" {
		return fmt.Errorf("version %s: from v2 on the paths of the modules must end with /%s",
			version, major)
	}
	for _, tag := range tags {
		last := tag[strings.LastIndexByte(tag, '/')+1:]
		if semver.IsValid(last) && semver.Compare(version, last) <= 0 {
			return fmt.Errorf("version %s is not larger than the tag %s", version, tag)
		}
	}
	return nil
}

var heading = regexp.MustCompile(`^## \[?([^\] \n]+)`)

// checkChangelog wants the first section behind Unreleased to be that of the version, with an entry
// at least, and no entry under Unreleased: the release would contain it.
func checkChangelog(text, version string) error {
	section, versions := "", []string(nil)
	entries := make(map[string]int)
	for line := range strings.Lines(text) {
		if match := heading.FindStringSubmatch(line); match != nil {
			section = match[1]
			if section != "Unreleased" {
				versions = append(versions, section)
			}
		} else if strings.HasPrefix(line, "- ") {
			entries[section]++
		}
	}
	switch {
	case len(versions) == 0 || versions[0] != version:
		return fmt.Errorf("CHANGELOG.md: the first section behind Unreleased is not \"## %s\"",
			version)
	case entries[version] == 0:
		return fmt.Errorf("CHANGELOG.md: the section %s has no entry", version)
	case entries["Unreleased"] > 0:
		return fmt.Errorf("CHANGELOG.md: %d entries are under Unreleased, and not under %s",
			entries["Unreleased"], version)
	}
	return nil
}

// checkLicences wants the licence in the zip of every released module, as a file of its own: who
// gets one module gets nothing of the root.
func checkLicences(root string, modules []*repoModule) error {
	want, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range modules {
		if !m.released {
			continue
		}
		got, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.dir), "LICENSE"))
		if err != nil {
			errs = append(errs, err)
		} else if !bytes.Equal(got, want) {
			errs = append(errs, fmt.Errorf("%s/LICENSE is not the LICENSE of the root", m.dir))
		}
	}
	return errors.Join(errs...)
}
