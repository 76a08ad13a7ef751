package hygiene

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

func TestHygienePackageDocs(t *testing.T) {
	report(t, thisRepository(t).packageDocComplaints())
}

// packageDocComplaints wants exactly one doc comment for every package, for programs and packages
// of only tests too: with none a newcomer is lost, and with two go doc shows both, in the order of
// the files.
func (s *sourceTree) packageDocComplaints() (complaints []string) {
	type packageKey struct{ dir, name string }
	files := make(map[packageKey][]*sourceFile)
	var keys []packageKey
	for _, file := range s.goFiles() {
		key := packageKey{file.dir(), strings.TrimSuffix(file.syntax.Name.Name, "_test")}
		if files[key] == nil {
			keys = append(keys, key)
		}
		files[key] = append(files[key], file)
	}
	for _, key := range keys {
		// Where there is anything but tests, go doc reads only that.
		program := slices.DeleteFunc(slices.Clone(files[key]), (*sourceFile).isTest)
		if len(program) == 0 {
			program = files[key]
		}
		var docs []string
		for _, file := range program {
			text := strings.TrimSpace(file.syntax.Doc.Text())
			if text == "" {
				continue
			}
			docs = append(docs, file.name)
			prefix := "Package " + key.name
			switch {
			case key.name != "main" && !strings.HasPrefix(text, prefix+" "):
				complaints = append(complaints,
					fmt.Sprintf("%s: package doc begins %.40q, want %q and what it is", file.name,
						text, prefix))
			case len(strings.Fields(text)) < 5:
				complaints = append(complaints, fmt.Sprintf("%s: package doc %q says nothing",
					file.name, text))
			}
		}
		if len(docs) != 1 {
			complaints = append(complaints,
				fmt.Sprintf("package %s in %s has %d package docs, want exactly one: %v", key.name,
					key.dir, len(docs), docs))
		}
	}
	return complaints
}

func TestHygienePackageDocsSelfTest(t *testing.T) {
	selfTest(t, (*sourceTree).packageDocComplaints, []treeCase{
		{"one each", map[string]string{
			"a.go":            "// Package holdfast is a lock manager.\npackage holdfast\n",
			"b.go":            "// Copyright notices stand apart.\n\npackage holdfast\n",
			"b_test.go":       "package holdfast_test\n",
			"cmd/x/main.go":   "// Command x puts a lock around programs.\npackage main\n",
			"itest/a_test.go": "// Package itest runs real servers.\npackage itest\n",
		}, nil},
		{"none", map[string]string{"a.go": "package a\n"},
			[]string{"package a in . has 0 package docs"}},
		{"none in a program", map[string]string{"cmd/x/main.go": "package main\n"},
			[]string{"package main in cmd/x has 0"}},
		{"only in a test", map[string]string{
			"a.go":      "package a\n",
			"a_test.go": "// Package a is documented where go doc does not look.\npackage a\n",
		}, []string{"has 0 package docs"}},
		{"only a directive",
			map[string]string{"a.go": "//go:build linux\n\n//go:generate true\npackage a\n"},
			[]string{"has 0 package docs"}},
		{"two", map[string]string{
			"a.go":       "// Package a is one thing here.\npackage a\n",
			"a_linux.go": "// Package a is another thing there.\npackage a\n",
		}, []string{"has 2 package docs"}},
		{"nothing said", map[string]string{"a.go": "// Package a.\npackage a\n",
			"b/b.go": "// Package b is it.\npackage b\n"},
			[]string{`begins "Package a."`, "says nothing"}},
		{"another name",
			map[string]string{"a.go": "// Package b is what this was copied from.\npackage a\n"},
			[]string{`want "Package a"`}},
	})
}

func TestHygieneDocComments(t *testing.T) {
	report(t, thisRepository(t).docCommentComplaints())
}

// docCommentComplaints wants a comment for every exported identifier in every module, tests
// excepted, and for exported fields and interface methods of everything that others can import. The
// comment of a group of constants or variables speaks for all of it; a comment at the end of the
// line counts for constants, variables, fields and methods.
func (s *sourceTree) docCommentComplaints() (complaints []string) {
	for _, file := range s.goFiles() {
		if file.isTest() {
			continue
		}
		missing := func(node ast.Node, kind, name string) {
			complaints = append(complaints, fmt.Sprintf("%s: exported %s %s has no doc comment",
				s.at(node), kind, name))
		}
		public := file.syntax.Name.Name != "main" &&
			!slices.Contains(strings.Split(file.dir(), "/"), "internal")
		for _, declaration := range file.syntax.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				receiver := receiverName(d)
				if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver)) &&
					d.Doc.Text() == "" {
					if d.Recv == nil {
						missing(d, "function", d.Name.Name)
					} else {
						missing(d, "method", receiver+"."+d.Name.Name)
					}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						if d.Doc.Text() != "" || spec.Doc.Text() != "" ||
							spec.Comment.Text() != "" {
							continue
						}
						for _, name := range spec.Names {
							if name.IsExported() {
								missing(name, d.Tok.String(), name.Name)
							}
						}
					case *ast.TypeSpec:
						if !spec.Name.IsExported() {
							continue
						}
						// The comment above a group of types is not shown with any of them.
						if spec.Doc.Text() == "" &&
							(d.Doc.Text() == "" || d.Lparen != token.NoPos) {
							missing(spec, "type", spec.Name.Name)
						}
						if public {
							undocumentedMembers(spec.Type, spec.Name.Name, missing)
						}
					}
				}
			}
		}
	}
	return complaints
}

// receiverName returns the name of the type of a method's receiver, or "".
func receiverName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) != 1 {
		return ""
	}
	expr := f.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.ParenExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// undocumentedMembers finds fields and methods in a type's definition, also in structs nested in
// it. What is embedded is documented where it is declared, and so is a field that only repeats the
// name of its type, as State State or Kind NoticeKind.
func undocumentedMembers(expr ast.Expr, name string,
	missing func(node ast.Node, kind, name string)) {
	ast.Inspect(expr, func(node ast.Node) bool {
		var fields *ast.FieldList
		kind := "field"
		switch e := node.(type) {
		case *ast.StructType:
			fields = e.Fields
		case *ast.InterfaceType:
			fields, kind = e.Methods, "interface method"
		case *ast.FuncType:
			return false
		default:
			return true
		}
		for _, field := range fields.List {
			for _, member := range field.Names {
				if named, ok := field.Type.(*ast.Ident); ok && named.IsExported() &&
					strings.HasSuffix(named.Name, member.Name) {
					continue
				}
				if member.IsExported() && field.Doc.Text() == "" && field.Comment.Text() == "" {
					missing(member, kind, name+"."+member.Name)
				}
			}
		}
		return true
	})
}

func TestHygieneDocCommentsSelfTest(t *testing.T) {
	const module = "cmd/x/go.mod"
	selfTest(t, (*sourceTree).docCommentComplaints, []treeCase{
		{"documented", map[string]string{
			"a.go": `package a

// F does.
func F() {}

func f() {}

// T is.
type T[P any] struct {
	// A is.
	A int
	B, C int // they are
	d int
	I
	State State
	Kind  NoticeKind
	_     struct{}
}

// M does.
func (t *T[P]) M() {}

func (t *T[P]) m() {}

type hidden struct{ A int }

func (hidden) Error() string { return "" }

// I is.
type I interface {
	// M does.
	M()
	m()
	error
}

// Colours.
const (
	Red = iota
	Green
)

var (
	// V is.
	V int
	W int // is too
)
`,
			"a_test.go":       "package a\nfunc Helper() {}\n",
			"internal/x/x.go": "package x\n// T is.\ntype T struct { A int }\n",
		}, nil},
		{"function", map[string]string{"a.go": "package a\nfunc F() {}\n"},
			[]string{"a.go:2: exported function F"}},
		{"function with only a directive",
			map[string]string{"a.go": "package a\n//go:noinline\nfunc F() {}\n"},
			[]string{"function F"}},
		{"method",
			map[string]string{"a.go": "package a\n// T is.\ntype T[P any] int\nfunc (t *T[P]) M() {}\n"}, []string{"method T.M"}},
		{"type", map[string]string{"a.go": "package a\ntype T int\n"}, []string{"type T"}},
		{"types in a group",
			map[string]string{"a.go": "package a\n// Types.\ntype (\n// T is.\nT int\nU int\n)\n"},
			[]string{"type U"}},
		{"constant and variable",
			map[string]string{"a.go": "package a\nconst C = 1\nvar (\n// V is.\nV int\nW, x int\n)\n"}, []string{"const C",
				"var W"}},
		{"field",
			map[string]string{"a.go": "package a\n// T is.\ntype T struct {\n\tA, B int\n\tE Kind\n\tN struct {\n\t\tC int // is\n\t\tD int\n\t} // is\n}\n"}, []string{"field T.A",
				"field T.B", "field T.E", "field T.D"}},
		{"interface method",
			map[string]string{"a.go": "package a\n// T is.\ntype T interface { M() }\n"},
			[]string{"interface method T.M"}},
		{"in an internal package and in a program", map[string]string{
			module:            "module " + kernelPath + "/cmd/x\n",
			"internal/x/x.go": "package x\nfunc F() {}\n",
			"cmd/x/main.go":   "package main\ntype T struct { A int }\n",
		}, []string{"type T", "function F"}},
	})
}
