//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers names the files as DESIGN.md does. A file uses only those before it; the methods of
// Backend, in the last line, use each other.
var layers = [][]string{
	{"doc.go", "options.go"},
	{"files.go", "marks.go", "system_linux.go", "system_bsd.go", "network_bsd.go",
		"network_unknown.go"},
	{"resolve.go", "directory.go"},
	{"seal.go", "fence.go", "counter.go"},
	{"marker.go", "trust.go"},
	{"member.go"},
	{"record.go", "keyfile.go"},
	{"messages.go"},
	{"step.go"},
	{"job.go", "lane.go"},
	{"notices.go"},
	{"work.go", "watch.go", "sweep.go", "inspect.go", "backend.go"},
}

// TestFilesUseThoseBeforeThem keeps storage apart from what the Backend does with it.
func TestFilesUseThoseBeforeThem(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	order := slices.Concat(layers...)
	last := slices.Index(order, layers[len(layers)-1][0])
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		if !slices.Contains(order, name) {
			t.Errorf("%s is in no layer", name)
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	// What comes from other packages stays unknown: that is an error, and does not matter.
	config := types.Config{Importer: nothing{}, Error: func(error) {}}
	checked, _ := config.Check("filehold", set, files, info)
	place := func(p token.Pos) int {
		return slices.Index(order, filepath.Base(set.Position(p).Filename))
	}
	uses := 0
	for ident, object := range info.Uses {
		if object.Pkg() != checked || !object.Pos().IsValid() {
			continue
		}
		uses++
		from, to := place(ident.Pos()), place(object.Pos())
		if to > from && from < last {
			t.Errorf("%s uses %s of %s, which comes after it", set.Position(ident.Pos()),
				ident.Name, order[to])
		}
	}
	if uses < 1000 {
		t.Errorf("only %d uses were found", uses)
	}
}

// nothing imports empty packages.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
	p.MarkComplete()
	return p, nil
}
