package hygiene

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestHygieneExamples(t *testing.T) {
	report(t, thisRepository(t).exampleComplaints())
}

// withoutExample are the packages that need no example: directory and reason.
var withoutExample = map[string]string{}

// exampleComplaints wants an example in every package that others can import. It is the code that
// they copy, and it compiles, which code in a comment need not.
func (s *sourceTree) exampleComplaints() (complaints []string) {
	names := make(map[string]string) // of packages, by directory
	var dirs []string
	shown := make(map[string]bool)
	for _, file := range s.goFiles() {
		dir := file.dir()
		switch {
		case slices.Contains(neverReleased, file.module.dir) ||
			slices.Contains(strings.Split(dir, "/"), "internal"):
		case file.isTest():
			shown[dir] = shown[dir] || slices.ContainsFunc(file.syntax.Decls, isExample)
		case file.syntax.Name.Name != "main" && names[dir] == "":
			names[dir] = file.syntax.Name.Name
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		reason, excepted := withoutExample[dir]
		switch {
		case !shown[dir] && !excepted:
			complaints = append(complaints, fmt.Sprintf(
				"package %s in %s has no example, which users copy from its documentation; "+
					"one that needs a server has no Output, so it is only compiled",
				names[dir], dir))
		case shown[dir] && excepted:
			complaints = append(complaints, fmt.Sprintf(
				"package %s in %s has an example, and withoutExample says why not: %s",
				names[dir], dir, reason))
		}
	}
	return complaints
}

// isExample reports whether go doc shows the declaration as an example.
func isExample(declaration ast.Decl) bool {
	function, ok := declaration.(*ast.FuncDecl)
	if !ok || function.Recv != nil || function.Type.Params.NumFields() > 0 ||
		function.Type.Results.NumFields() > 0 {
		return false
	}
	rest, ok := strings.CutPrefix(function.Name.Name, "Example")
	first, _ := utf8.DecodeRuneInString(rest)
	return ok && !unicode.IsLower(first)
}

func TestHygieneExamplesSelfTest(t *testing.T) {
	const example = "func Example() {}\n"
	selfTest(t, (*sourceTree).exampleComplaints, []treeCase{
		{"shown, or not for others", map[string]string{
			"a.go":                   "package holdfast\n",
			"example_test.go":        "package holdfast_test\n" + example,
			"b/b.go":                 "package b\n",
			"b/b_test.go":            "package b\nfunc ExampleNew_twice() {}\n",
			"internal/x/x.go":        "package x\n",
			"b/internal/y/y.go":      "package y\n",
			"cmd/c/main.go":          "package main\n",
			"only/only_test.go":      "package only\n",
			"simulate/go.mod":        "module " + kernelPath + "/simulate\n",
			"simulate/simulate.go":   "package simulate\n",
			"b/testdata/broken/x.go": "no Go at all",
		}, nil},
		{"none", map[string]string{
			"a.go":             "package holdfast\n",
			"a_test.go":        "package holdfast\nfunc TestExample(t *testing.T) {}\n",
			"redishold/go.mod": "module " + kernelPath + "/redishold\n",
			"redishold/a.go":   "package redishold\n",
		}, []string{"package holdfast in .", "package redishold in redishold"}},
		{"in another package", map[string]string{
			"a/a.go":        "package a\n",
			"a/b/b.go":      "package b\n",
			"a/b/b_test.go": "package b_test\n" + example,
		}, []string{"package a in a"}},
		{"what is no example", map[string]string{
			"a.go": "package a\nfunc Example() {}\n",
			"a_test.go": "package a\nfunc Examples() {}\nfunc (t T) Example() {}\n" +
				"func ExampleOf(n int) {}\nfunc ExampleGiven() int { return 0 }\n",
		}, []string{"package a"}},
	})
	t.Run("an exception that is none", func(t *testing.T) {
		withoutExample["x"] = "it is like package y"
		defer delete(withoutExample, "x")
		files := map[string]string{"x/x.go": "package x\n"}
		if got := treeOf(t, files).exampleComplaints(); len(got) != 0 {
			t.Errorf("the exception is not heeded: %q", got)
		}
		files["x/x_test.go"] = "package x\n" + example
		if got := treeOf(t, files).exampleComplaints(); len(got) != 1 ||
			!strings.Contains(got[0], "like package y") {
			t.Errorf("the exception is not withdrawn: %q", got)
		}
	})
}
