package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// rootPath is the path of the module at the root. That of every other one is below it, by its
// directory.
const rootPath = "github.com/holdfast-go/holdfast"

// listName is the file that lists the modules.
const listName = "scripts/modules.txt"

// repoModule is a module of the repository.
type repoModule struct {
	dir      string // slash-separated, "." for the root
	released bool
	siblings []string // the paths of the modules of this repository that it imports, tests included
}

// path returns the module's path.
func (m *repoModule) path() string { return path.Join(rootPath, m.dir) }

// tag returns the name of the tag that the module has for a version.
func (m *repoModule) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return m.dir + "/" + version
}

// readModules reads the list of the repository at root, and compares it with the go.mod files that
// are there. A module comes after those that it imports.
func readModules(root string) ([]*repoModule, error) {
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(listName)))
	if err != nil {
		return nil, err
	}
	modules, err := parseModules(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", listName, err)
	}
	if err := compareWithTree(root, modules); err != nil {
		return nil, err
	}
	for _, m := range modules {
		if m.siblings, err = siblingsOf(root, m, modules); err != nil {
			return nil, err
		}
	}
	return inOrder(modules)
}

// parseModules reads the text of the list.
func parseModules(text string) (modules []*repoModule, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 || fields[0] != "released" && fields[0] != "internal" {
			return nil, fmt.Errorf("line %q is neither \"released DIR\" nor \"internal DIR\"", line)
		}
		if find(modules, path.Join(rootPath, fields[1])) != nil {
			return nil, fmt.Errorf("%s is listed twice", fields[1])
		}
		modules = append(modules, &repoModule{dir: fields[1], released: fields[0] == "released"})
	}
	return modules, nil
}

// find returns the module with the path, or nil.
func find(modules []*repoModule, modulePath string) *repoModule {
	for _, m := range modules {
		if m.path() == modulePath {
			return m
		}
	}
	return nil
}

// compareWithTree wants a go.mod for every module of the list, and no other.
func compareWithTree(root string, modules []*repoModule) error {
	missing := make(map[string]bool)
	for _, m := range modules {
		missing[m.path()] = true
	}
	err := walk(root, func(name string) error {
		if path.Base(name) != "go.mod" {
			return nil
		}
		modulePath := path.Join(rootPath, path.Dir(name))
		if !missing[modulePath] {
			return fmt.Errorf("%s does not list %s", listName, path.Dir(name))
		}
		delete(missing, modulePath)
		return nil
	})
	if err != nil {
		return err
	}
	for modulePath := range missing {
		return fmt.Errorf("%s lists %s, which has no go.mod", listName, modulePath)
	}
	return nil
}

// walk calls visit for the files below root, but for those that are no part of a module.
func walk(root string, visit func(name string) error) error {
	return fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := path.Base(name); name != "." &&
				(base == "testdata" || strings.HasPrefix(base, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		return visit(name)
	})
}

// siblingsOf finds what the Go files of a module import of other modules of the repository.
func siblingsOf(root string, m *repoModule, modules []*repoModule) (paths []string, err error) {
	dir := filepath.Join(root, filepath.FromSlash(m.dir))
	err = walk(dir, func(name string) error {
		if path.Ext(name) != ".go" || owner(path.Join(m.path(), name), modules) != m {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(),
			filepath.Join(dir, filepath.FromSlash(name)), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if other := owner(imported, modules); other != nil && other != m &&
				!slices.Contains(paths, other.path()) {
				paths = append(paths, other.path())
			}
		}
		return nil
	})
	slices.Sort(paths)
	return paths, err
}

// owner returns the innermost module that a path belongs to, or nil.
func owner(name string, modules []*repoModule) (best *repoModule) {
	for _, m := range modules {
		if (name == m.path() || strings.HasPrefix(name, m.path()+"/")) &&
			(best == nil || len(m.path()) > len(best.path())) {
			best = m
		}
	}
	return best
}

// inOrder puts each module behind those that it imports. A released one imports released ones only.
func inOrder(modules []*repoModule) (ordered []*repoModule, err error) {
	under := make(map[*repoModule]bool)
	var place func(m *repoModule) error
	place = func(m *repoModule) error {
		if slices.Contains(ordered, m) {
			return nil
		}
		if under[m] {
			return fmt.Errorf("%s imports itself by way of others, so no checksum comes first",
				m.path())
		}
		under[m] = true
		for _, sibling := range m.siblings {
			other := find(modules, sibling)
			if m.released && !other.released {
				return fmt.Errorf("%s is released, and imports %s, which is not", m.path(), sibling)
			}
			if err := place(other); err != nil {
				return err
			}
		}
		ordered = append(ordered, m)
		return nil
	}
	for _, m := range modules {
		if err := place(m); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

// below returns the paths of all modules of the repository that a module needs, at any distance.
func below(m *repoModule, modules []*repoModule) (paths []string) {
	for _, sibling := range m.siblings {
		for _, p := range append(below(find(modules, sibling), modules), sibling) {
			if !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	return paths
}
