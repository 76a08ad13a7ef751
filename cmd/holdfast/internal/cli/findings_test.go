package cli_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// repository is the directory with all modules.
const repository = "../../../.."

// TestFindingsHavePages: docs/doctor.md has a section for each code that a Checker of this
// repository can find, a line in its table, and nothing else.
func TestFindingsHavePages(t *testing.T) {
	codes := codesOf(t, repository)
	if len(codes) < 14 || !slices.Contains(codes, "eviction-policy") ||
		!slices.Contains(codes, "same-server") {
		t.Errorf("the source has only these: %q", codes)
	}
	page, err := os.ReadFile(filepath.Join(repository, "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	for what, pattern := range map[string]string{
		"sections":           `(?m)^## (.*)$`,
		"lines of the table": `(?m)^\| \[(.*)\]\(#.*$`,
	} {
		var got []string
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(page), -1) {
			got = append(got, match[1])
		}
		if !slices.Equal(got, codes) {
			t.Errorf("%s for %q; want one for each of %q, in order", what, got, codes)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(#(.*?)\)`).FindAllStringSubmatch(string(page), -1) {
		if !slices.Contains(codes, link[1]) {
			t.Errorf("a link to %q, which is no section", link[1])
		}
	}
}

// generated are directories with no source of ours. In some, other tests make and remove files.
var generated = []string{"testdata", ".git", ".cache", "bin", "node_modules"}

// codesOf returns the codes of all findings that are written in the source, in order.
func codesOf(t *testing.T, root string) (codes []string) {
	t.Helper()
	packages := make(map[string][]*ast.File)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(generated, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, files := range packages {
		found, complaints := findingsOf(files)
		codes = append(codes, found...)
		for _, complaint := range complaints {
			t.Errorf("%s: %s", dir, complaint)
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// findingsOf returns the codes of the driver.Findings of a package. A code is a literal, or a
// parameter of a function that is called with literals. Any other is a complaint.
func findingsOf(files []*ast.File) (codes, complaints []string) {
	for _, file := range files {
		for _, declaration := range file.Decls {
			f, _ := declaration.(*ast.FuncDecl)
			ast.Inspect(declaration, func(n ast.Node) bool {
				code, ok := codeOf(n)
				switch {
				case isList(n):
					complaints = append(complaints, "a list of findings; write driver.Finding before each")
				case !ok:
				case literal(code) != "":
					codes = append(codes, literal(code))
				case f == nil:
					complaints = append(complaints, "a finding outside of functions")
				default:
					found := passed(files, f, code)
					if len(found) == 0 {
						complaints = append(complaints, f.Name.Name+
							" has a finding whose code cannot be seen; write it where it is found")
					}
					codes = append(codes, found...)
				}
				return true
			})
		}
	}
	return codes, complaints
}

// codeOf returns what a driver.Finding has as its code.
func codeOf(n ast.Node) (code ast.Expr, ok bool) {
	composite, _ := n.(*ast.CompositeLit)
	if composite == nil {
		return nil, false
	}
	of, _ := composite.Type.(*ast.SelectorExpr)
	if of == nil || of.Sel.Name != "Finding" {
		return nil, false
	}
	if from, _ := of.X.(*ast.Ident); from == nil || from.Name != "driver" {
		return nil, false
	}
	for _, element := range composite.Elts {
		pair, _ := element.(*ast.KeyValueExpr)
		if pair == nil {
			return nil, true // without names
		}
		if name, _ := pair.Key.(*ast.Ident); name != nil && name.Name == "Code" {
			return pair.Value, true
		}
	}
	return nil, len(composite.Elts) > 0
}

// isList reports whether n is a list of findings whose elements leave out the type.
func isList(n ast.Node) bool {
	list, _ := n.(*ast.CompositeLit)
	if list == nil || len(list.Elts) == 0 {
		return false
	}
	array, _ := list.Type.(*ast.ArrayType)
	if array == nil {
		return false
	}
	of, _ := array.Elt.(*ast.SelectorExpr)
	first, _ := list.Elts[0].(*ast.CompositeLit)
	return of != nil && of.Sel.Name == "Finding" && first != nil && first.Type == nil
}

// passed returns the literals that are passed to a function for one of its parameters. It returns
// none if it is passed anything else.
func passed(files []*ast.File, f *ast.FuncDecl, code ast.Expr) (found []string) {
	place, _ := code.(*ast.Ident)
	if place == nil {
		return nil
	}
	var names []string
	for _, field := range f.Type.Params.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	i := slices.Index(names, place.Name)
	if i < 0 {
		return nil
	}
	hidden := false
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, _ := n.(*ast.CallExpr)
			if call == nil || len(call.Args) != len(names) || calleeOf(call) != f.Name.Name {
				return true
			}
			if text := literal(call.Args[i]); text != "" {
				found = append(found, text)
			} else {
				hidden = true
			}
			return true
		})
	}
	if hidden {
		return nil
	}
	return found
}

func calleeOf(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// literal returns the text of a string in the source, or nothing.
func literal(e ast.Expr) string {
	basic, _ := e.(*ast.BasicLit)
	if basic == nil || basic.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(basic.Value)
	if err != nil {
		return ""
	}
	return text
}

// TestFindingsAreSeen: the search sees codes as they are written, and complains about those that it
// cannot see.
func TestFindingsAreSeen(t *testing.T) {
	for source, want := range map[string][]string{
		`var x = 1`: nil,
		`func f() { g(driver.Finding{Severity: 1, Code: "a-b"}) }`: {"a-b"},
		`func f() []driver.Finding { return []driver.Finding{} }`:  nil,
		`func f() any { return check.Finding{Check: "a"} }`:        nil,
		`func (x) f(s, code string) { _ = driver.Finding{Code: code} }
func g() { y.f("1", "a"); y.f("2", "b") }`: {"a", "b"},
		`func f(code string) { _ = driver.Finding{Code: code} }
func g() { f("a"); f(x) }`: {"!"},
		`func f() { _ = driver.Finding{Code: "a" + "b"} }`: {"!"},
		`func f() { _ = driver.Finding{Severity: 1} }`:     {"!"},
		`func f() { _ = driver.Finding{1, "a"} }`:          {"!"},
		`var x = driver.Finding{Code: y}`:                  {"!"},
		`var x = []driver.Finding{{Code: "a"}}`:            {"!"},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, complaints := findingsOf([]*ast.File{file})
		if len(complaints) > 0 {
			got = []string{"!"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q; complaints %q", source, got, want, complaints)
		}
	}
}
