package hygiene

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

// Each check is a method of sourceTree that returns its complaints, so that the same check runs on
// this repository and, in its self-test, on small trees that break the rule: a check that finds
// nothing must be able to find something.

// kernelPath is the path of the module at the root.
const kernelPath = "github.com/holdfast-go/holdfast"

// sourceTree is what the checks look at: the files of the repository that are not ignored by git.
type sourceTree struct {
	fset    *token.FileSet
	files   []*sourceFile   // sorted by name
	modules []*sourceModule // every go.mod outside testdata
}

// sourceModule is one go.mod.
type sourceModule struct {
	dir  string // slash-separated, "." for the root
	path string
	mod  []byte
}

// sourceFile is one file. The fields after data are nil for what is not Go, or lies in testdata.
type sourceFile struct {
	name   string // slash-separated, relative to the root
	data   []byte
	syntax *ast.File
	module *sourceModule
}

// thisRepository reads the repository once for all checks, and fails the test if it cannot.
func thisRepository(t *testing.T) *sourceTree {
	t.Helper()
	tree, err := readThisRepository()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

var readThisRepository = sync.OnceValues(func() (*sourceTree, error) {
	names, err := repositoryFiles()
	if err != nil {
		return nil, err
	}
	tree, err := newSourceTree(os.DirFS("."), names)
	if err != nil {
		return nil, err
	}
	// A listing that went wrong would leave every check without anything to complain about.
	for _, name := range []string{"go.mod", "locker.go", "driver/backend.go",
		"internal/clock/clock.go", "internal/hygiene/tree_test.go"} {
		if tree.file(name) == nil {
			return nil, fmt.Errorf("the listing of the repository lacks %s: %d files", name,
				len(tree.files))
		}
	}
	return tree, nil
})

// repositoryFiles lists the files that git tracks or would track. Without git, or outside a
// checkout, it lists all but the directories that are never part of the project.
func repositoryFiles() ([]string, error) {
	if _, err := os.Stat(".git"); err == nil {
		// The checkout may belong to another user than the one who runs the tests.
		list := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached",
			"--others", "--exclude-standard", "--deduplicate")
		var stderr bytes.Buffer
		list.Stderr = &stderr
		out, err := list.Output()
		if err == nil {
			return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
		}
		if !errors.Is(err, exec.ErrNotFound) {
			return nil, fmt.Errorf("%v: %w: %s", list, err, stderr.Bytes())
		}
	}
	var names []string
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", ".cache", "bin", "node_modules"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		names = append(names, name)
		return nil
	})
	return names, err
}

// newSourceTree reads and parses the named files. Names that are no regular files are left out: git
// lists what was deleted a moment ago.
func newSourceTree(fsys fs.FS, names []string) (*sourceTree, error) {
	tree := &sourceTree{fset: token.NewFileSet()}
	slices.Sort(names)
	for _, name := range names {
		info, err := fs.Stat(fsys, name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return nil, err
		}
		data, err := fs.ReadFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since
		}
		if err != nil {
			return nil, err
		}
		file := &sourceFile{name: name, data: data}
		tree.files = append(tree.files, file)
		if !inTestdata(name) && path.Base(name) == "go.mod" {
			tree.modules = append(tree.modules,
				&sourceModule{dir: path.Dir(name), path: modulePath(data), mod: data})
		}
		if !inTestdata(name) && strings.HasSuffix(name, ".go") {
			file.syntax, err = parser.ParseFile(tree.fset, name, data,
				parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
		}
	}
	for _, file := range tree.files {
		if file.syntax == nil {
			continue
		}
		for _, module := range tree.modules {
			if module.contains(file.name) &&
				(file.module == nil || len(module.dir) > len(file.module.dir) ||
					file.module.dir == ".") {
				file.module = module
			}
		}
		if file.module == nil {
			return nil, fmt.Errorf("%s belongs to no module", file.name)
		}
	}
	return tree, nil
}

func inTestdata(name string) bool {
	return strings.HasPrefix(name, "testdata/") || strings.Contains(name, "/testdata/")
}

func modulePath(mod []byte) string {
	for line := range strings.Lines(string(mod)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "module" {
			return fields[1]
		}
	}
	return ""
}

// contains reports whether the file lies below the module's directory, perhaps in a nested module.
func (m *sourceModule) contains(name string) bool {
	return m.dir == "." || strings.HasPrefix(name, m.dir+"/")
}

func (m *sourceModule) isKernel() bool { return m.path == kernelPath }

// owner returns the module of the tree that an import path belongs to, or nil.
func (s *sourceTree) owner(importPath string) *sourceModule {
	var best *sourceModule
	for _, module := range s.modules {
		if importPath == module.path || strings.HasPrefix(importPath, module.path+"/") {
			if best == nil || len(module.path) > len(best.path) {
				best = module
			}
		}
	}
	return best
}

func (s *sourceTree) file(name string) *sourceFile {
	for _, file := range s.files {
		if file.name == name {
			return file
		}
	}
	return nil
}

// at formats a position as file:line.
func (s *sourceTree) at(node ast.Node) string {
	position := s.fset.Position(node.Pos())
	return position.Filename + ":" + strconv.Itoa(position.Line)
}

// goFiles returns the parsed files.
func (s *sourceTree) goFiles() []*sourceFile {
	return slices.DeleteFunc(slices.Clone(s.files), func(f *sourceFile) bool {
		return f.syntax == nil
	})
}

func (f *sourceFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

func (f *sourceFile) dir() string { return path.Dir(f.name) }

// imports reports whether the file imports the package.
func (f *sourceFile) imports(importPath string) bool {
	return slices.ContainsFunc(f.syntax.Imports, func(spec *ast.ImportSpec) bool {
		return importedPath(spec) == importPath
	})
}

func importedPath(spec *ast.ImportSpec) string {
	unquoted, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return unquoted
}

// uses calls found for every mention of one of the package's names, called or not, under whatever
// name the package is imported. A dot import is found as a mention of its own, since what it brings
// cannot be told apart.
func (f *sourceFile) uses(importPath string, names []string,
	found func(node ast.Node, name string)) {
	for _, spec := range f.syntax.Imports {
		if importedPath(spec) != importPath {
			continue
		}
		local := path.Base(importPath)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			found(spec, "everything, by a dot import")
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok &&
				slices.Contains(names, selector.Sel.Name) {
				if qualifier, ok := selector.X.(*ast.Ident); ok && qualifier.Name == local {
					found(selector, selector.Sel.Name)
				}
			}
			return true
		})
	}
}

// report fails the test with every complaint.
func report(t *testing.T, complaints []string) {
	t.Helper()
	for _, complaint := range complaints {
		t.Error(complaint)
	}
}

// treeCase is one case of a check's self-test: a tree, and what the check has to say about it.
type treeCase struct {
	name  string
	files map[string]string
	// one substring for each complaint, in order; none for a tree that keeps the rule
	want []string
}

// selfTest runs a check on trees of a few files. A kernel's go.mod is added where there is none.
func selfTest(t *testing.T, check func(*sourceTree) []string, cases []treeCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := check(treeOf(t, c.files))
			if len(got) != len(c.want) {
				t.Fatalf("%d complaints, want %d:\n%s", len(got), len(c.want),
					strings.Join(got, "\n"))
			}
			for i := range got {
				if !strings.Contains(got[i], c.want[i]) {
					t.Errorf("complaint %q does not contain %q", got[i], c.want[i])
				}
			}
		})
	}
	if !slices.ContainsFunc(cases, func(c treeCase) bool { return len(c.want) > 0 }) {
		t.Error("no case breaks the rule")
	}
	if !slices.ContainsFunc(cases, func(c treeCase) bool { return len(c.want) == 0 }) {
		t.Error("no case keeps the rule")
	}
}

func treeOf(t *testing.T, files map[string]string) *sourceTree {
	t.Helper()
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module " + kernelPath + "\n\ngo 1.25.0\n")}}
	for name, data := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(data)}
	}
	var names []string
	for name := range fsys {
		names = append(names, name)
	}
	tree, err := newSourceTree(fsys, names)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestHygieneTreeAssignsFilesToTheInnermostModule(t *testing.T) {
	tree := treeOf(t, map[string]string{
		"cmd/holdfast/go.mod":      "module " + kernelPath + "/cmd/holdfast\n",
		"cmd/holdfast/main.go":     "package main\n",
		"cmd/other/other.go":       "package other\n",
		"locker.go":                "package holdfast\n",
		"testdata/go.mod":          "module nothing\n",
		"testdata/broken/x.go":     "no Go at all",
		"cmd/holdfast/deep/x/x.go": "package x\n",
	})
	for name, want := range map[string]string{
		"cmd/holdfast/main.go":     "cmd/holdfast",
		"cmd/holdfast/deep/x/x.go": "cmd/holdfast",
		"cmd/other/other.go":       ".",
		"locker.go":                ".",
	} {
		if got := tree.file(name).module.dir; got != want {
			t.Errorf("%s belongs to %s, want %s", name, got, want)
		}
	}
	if len(tree.modules) != 2 {
		t.Errorf("%d modules, want 2: testdata holds none", len(tree.modules))
	}
	if got := tree.owner(kernelPath + "/cmd/holdfast/deep/x"); got == nil ||
		got.dir != "cmd/holdfast" {
		t.Errorf("import path of a nested module belongs to %v", got)
	}
	if got := tree.owner(kernelPath + "er"); got != nil {
		t.Errorf("a path that only begins like a module's belongs to %s", got.path)
	}
}
