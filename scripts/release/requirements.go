package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
)

// require returns a module's go.mod in which each module of the repository is required at the
// version. A released one loses its replacements, which nobody but its own checkout would follow;
// go install refuses a program that has any.
func require(data []byte, m *repoModule, modules []*repoModule, version string) ([]byte, error) {
	file, err := modfile.Parse(m.dir+"/go.mod", data, nil)
	if err != nil {
		return nil, err
	}
	needed := below(m, modules)
	required := slices.Clone(file.Require)
	for _, r := range required {
		if find(modules, r.Mod.Path) == nil {
			continue
		}
		r.Mod.Version = version
		needed = slices.DeleteFunc(needed, func(p string) bool { return p == r.Mod.Path })
	}
	for _, p := range needed {
		required = append(required,
			&modfile.Require{Mod: module.Version{Path: p, Version: version},
				Indirect: !slices.Contains(m.siblings, p)})
	}
	file.SetRequireSeparateIndirect(required)
	if m.released {
		for _, r := range slices.Clone(file.Replace) {
			if find(modules, r.Old.Path) == nil {
				return nil, fmt.Errorf("%s/go.mod replaces %s, which would hold for nobody else",
					m.dir, r.Old.Path)
			}
			if err := file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return nil, err
			}
		}
	}
	file.Cleanup()
	return file.Format()
}

// edit writes a module's go.mod and go.sum for the version. sums has the checksums of the modules
// that it needs.
func edit(root string, m *repoModule, modules []*repoModule, version string,
	sums map[string]sum) error {
	dir := filepath.Join(root, filepath.FromSlash(m.dir))
	name := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	changed, err := require(data, m, modules, version)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, changed, 0o644); err != nil {
		return err
	}
	if !m.released || len(m.siblings) == 0 {
		return nil // what is replaced has no checksum
	}
	name = filepath.Join(dir, "go.sum")
	data, err = os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, p := range below(m, modules) {
		data = addSum(data, p, version, sums[p])
	}
	return os.WriteFile(name, data, 0o644)
}

// sum is what go.sum has of one version of a module.
type sum struct{ zip, mod string }

// sumOf computes the checksums of a module from its zip and its go.mod.
func sumOf(zipName string, goMod []byte) (s sum, err error) {
	if s.zip, err = dirhash.HashZip(zipName, dirhash.Hash1); err != nil {
		return sum{}, err
	}
	s.mod, err = dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(goMod)), nil
	})
	return s, err
}

// addSum adds the checksums of a version to a go.sum, without those of older versions.
func addSum(goSum []byte, modulePath, version string, s sum) []byte {
	hashes := make(map[module.Version]string)
	for line := range strings.Lines(string(goSum)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] != modulePath {
			hashes[module.Version{Path: fields[0], Version: fields[1]}] = fields[2]
		}
	}
	hashes[module.Version{Path: modulePath, Version: version}] = s.zip
	hashes[module.Version{Path: modulePath, Version: version + "/go.mod"}] = s.mod
	var versions []module.Version
	for v := range hashes {
		versions = append(versions, v)
	}
	module.Sort(versions)
	var out bytes.Buffer
	for _, v := range versions {
		fmt.Fprintf(&out, "%s %s %s\n", v.Path, v.Version, hashes[v])
	}
	return out.Bytes()
}
