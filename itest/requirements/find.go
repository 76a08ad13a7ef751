package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// test is a test that names a requirement.
type test struct {
	file string // from the root of the repository
	name string
}

var (
	// Of a test: TestR4_Failover, TestR21R22Polling, TestR7_R8_Overrun, TestK6Suspend.
	inTestName = regexp.MustCompile(`^Test((?:[RK]\d+_?)+)(?:\D|$)`)
	// Of a subtest: "R5_PublishedLayout", "R5 published layout".
	inSubtestName = regexp.MustCompile(`^((?:[RK]\d+)(?:_?[RK]\d+)*)[_ ]`)
	oneID         = regexp.MustCompile(`[RK]\d+`)
)

// findTests reads all files of tests, of every module, and the files of drivertest, whose tests are
// called from elsewhere. The tests of each requirement are in the order of their files.
func findTests(repository fs.FS) (map[string][]test, error) {
	found := make(map[string][]test)
	add := func(ids, file, name string) {
		for _, id := range oneID.FindAllString(ids, -1) {
			if t := (test{file, name}); !slices.Contains(found[id], t) {
				found[id] = append(found[id], t)
			}
		}
	}
	err := fs.WalkDir(repository, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", ".cache", "node_modules", "testdata"},
				entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !hasTests(name) {
			return nil
		}
		data, err := fs.ReadFile(repository, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		testsOf(file, func(ids, test string) { add(ids, name, test) })
		return nil
	})
	return found, err
}

// hasTests reports whether a file has tests, by its name from the root of the repository.
func hasTests(name string) bool {
	return strings.HasSuffix(name, "_test.go") ||
		path.Dir(name) == "drivertest" && strings.HasSuffix(name, ".go")
}

// testsOf calls add for each test and subtest in a file whose name begins with requirements. ids is
// the part of the name that has them.
func testsOf(file *ast.File, add func(ids, test string)) {
	for _, declaration := range file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil {
			if match := inTestName.FindStringSubmatch(f.Name.Name); match != nil {
				add(match[1], f.Name.Name)
			}
		}
		ast.Inspect(declaration, func(node ast.Node) bool {
			literal, ok := node.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil || strings.ContainsAny(text, "\n%") {
				return true
			}
			if match := inSubtestName.FindStringSubmatch(text); match != nil {
				add(match[1], text)
			}
			return true
		})
	}
}
