package hygiene

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"testing"
)

// mapsOfTheCode are the documents that say where in the code something is.
var mapsOfTheCode = []string{"CONTRIBUTING.md", "DESIGN.md", "models/README.md"}

// ofOthers are documents that name what was, or what is in other libraries.
var ofOthers = []string{"CHANGELOG.md", "docs/compared.md"}

// qualifiedName is a name such as `Type.method` in Markdown, perhaps behind the name of a package.
// One letter before the dot is a variable, of which nothing is known.
var qualifiedName = regexp.MustCompile("`(?:[a-z]+\\.)?([A-Za-z]\\w+)\\.([A-Za-z]\\w*)`")

// majorVersion is the end of the path of a package that is named after what comes before it.
var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

func TestHygieneNamesInDocuments(t *testing.T) {
	if downloaded(t) {
		return
	}
	report(t, thisRepository(t).nameComplaints())
}

// nameComplaints wants every qualified name in these documents to be one of the code: a newcomer
// looks it up, and a name that has changed since leads nowhere. In the other documents at the root
// and in docs that holds for exported names; what is small there may be a setting of a server.
func (s *sourceTree) nameComplaints() (complaints []string) {
	known := s.names()
	for _, file := range s.files {
		document := file.name
		all := slices.Contains(mapsOfTheCode, document)
		if !all && (path.Ext(document) != ".md" || slices.Contains(ofOthers, document) ||
			path.Dir(document) != "." && path.Dir(document) != "docs") {
			continue
		}
		for _, match := range qualifiedName.FindAllSubmatch(file.data, -1) {
			owner, name := string(match[1]), string(match[2])
			switch members := known[owner]; {
			case s.named(owner + "." + name): // a file
			case !all && !ast.IsExported(name):
			case members == nil:
				complaints = append(complaints, fmt.Sprintf(
					"%s: %s: there is no type or package %s", document, match[0], owner))
			case !members[name] && !members["*"]:
				complaints = append(complaints, fmt.Sprintf(
					"%s: %s: no %s has this name in it", document, match[0], owner))
			}
		}
	}
	return complaints
}

// named reports whether a file of the tree has that name, in whatever directory.
func (s *sourceTree) named(base string) bool {
	return slices.ContainsFunc(s.files, func(f *sourceFile) bool {
		return path.Base(f.name) == base
	})
}

// names returns the names in each type and package, by its name: methods and fields, and what a
// package declares. A package of others has "*", which stands for any.
func (s *sourceTree) names() map[string]map[string]bool {
	known := make(map[string]map[string]bool)
	add := func(owner, name string) {
		if known[owner] == nil {
			known[owner] = make(map[string]bool)
		}
		known[owner][name] = true
	}
	for _, file := range s.goFiles() {
		for _, spec := range file.syntax.Imports {
			if imported := importedPath(spec); s.owner(imported) == nil {
				if majorVersion.MatchString(path.Base(imported)) {
					imported = path.Dir(imported)
				}
				add(path.Base(imported), "*")
			}
		}
		if file.isTest() {
			continue
		}
		for _, declared := range file.syntax.Decls {
			addDeclared(declared, file.syntax.Name.Name, add)
		}
	}
	return known
}

// addDeclared adds the names that a declaration of the package brings.
func addDeclared(declared ast.Decl, pkg string, add func(owner, name string)) {
	switch d := declared.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(pkg, d.Name.Name)
		} else {
			add(receiverName(d), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				add(pkg, spec.Name.Name)
				addMembers(spec, add)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					add(pkg, name.Name)
				}
			}
		}
	}
}

// addMembers adds the fields of a struct, or the methods of an interface.
func addMembers(spec *ast.TypeSpec, add func(owner, name string)) {
	var fields *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			add(spec.Name.Name, name.Name)
		}
	}
}

func TestHygieneNamesInDocumentsSelfTest(t *testing.T) {
	const code = "package ab\n\nimport (\n\"time\"\n\"a.org/pgx/v5\"\n)\n\n" +
		"type waiter struct{ call int }\n\n" +
		"func (w *waiter) wait() { time.Now() }\n\nfunc F() {}\n"
	selfTest(t, (*sourceTree).nameComplaints, []treeCase{
		{"names of the code", map[string]string{"ab.go": code,
			"DESIGN.md": "`waiter.wait` `ab.waiter.call` `ab.F` `time.Sleep` `pgx.Batch` " +
				"`t.Cleanup` `ab.go`",
		}, nil},
		{"a method that is gone", map[string]string{"ab.go": code,
			"models/README.md": "`waiter.alike`"}, []string{"no waiter has this name in it"}},
		{"a type that is gone", map[string]string{"ab.go": code,
			"DESIGN.md": "`pendingClaim.sleep`"}, []string{"no type or package pendingClaim"}},
		{"a function that is gone", map[string]string{"ab.go": code,
			"DESIGN.md": "`ab.G`"}, []string{"no ab has this name in it"}},
		{"settings of servers, and names of others", map[string]string{"ab.go": code,
			"README.md": "`jute.maxbuffer`", "docs/compared.md": "`ab.G`",
			"ab/a.md": "`ab.G`"}, nil},
		{"what is gone, in other documents", map[string]string{"ab.go": code,
			"README.md": "`ab.F` `ab.G`", "docs/x.md": "`Locker.Lock`"},
			[]string{"README.md: `ab.G`", "docs/x.md: `Locker.Lock`"}},
	})
}
