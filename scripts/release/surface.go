package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// surfaceDir is the folder that has the exported surface of each released module, one line for each
// thing that others can name, as Go's own folder api has.
const surfaceDir = "api"

// surfaceName returns the name of the file that has a module's surface.
func (m *repoModule) surfaceName() string {
	if m.dir == "." {
		return "holdfast.txt"
	}
	return strings.ReplaceAll(m.dir, "/", "-") + ".txt"
}

// loadSurfaces compiles the released modules of the tree at root, and returns the packages of each
// that others can import.
func loadSurfaces(ctx context.Context, root string,
	modules []*repoModule) (map[*repoModule][]*types.Package, error) {
	args := []string{"list", "-deps", "-export", "-json=ImportPath,Name,Export"}
	for _, m := range modules {
		if m.released {
			args = append(args, "./"+m.dir+"/...")
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	// The same system everywhere, or the surface would depend on who looks.
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work"), "GOOS=linux",
		"GOARCH=amd64", "GOFLAGS=-buildvcs=false")
	listed, err := output(cmd)
	if err != nil {
		return nil, err
	}
	exports, public := make(map[string]string), []string(nil)
	for decoder := json.NewDecoder(strings.NewReader(listed)); ; {
		var p struct{ ImportPath, Name, Export string }
		if err := decoder.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if m := owner(p.ImportPath, modules); m != nil && m.released && p.Name != "main" &&
			!slices.Contains(strings.Split(p.ImportPath, "/"), "internal") {
			public = append(public, p.ImportPath)
		}
	}
	gc := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	surfaces := make(map[*repoModule][]*types.Package)
	for _, path := range public {
		p, err := gc.Import(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		m := owner(path, modules)
		surfaces[m] = append(surfaces[m], p)
	}
	return surfaces, nil
}

// surfaceFiles returns the files of the folder as they have to be.
func surfaceFiles(ctx context.Context, root string) (map[string]string, error) {
	modules, err := readModules(root)
	if err != nil {
		return nil, err
	}
	surfaces, err := loadSurfaces(ctx, root, modules)
	if err != nil {
		return nil, err
	}
	files := make(map[string]string)
	for m, packages := range surfaces {
		var lines []string
		for _, p := range packages {
			lines = append(lines, linesOf(p)...)
		}
		slices.Sort(lines)
		files[m.surfaceName()] = strings.Join(lines, "\n") + "\n"
	}
	return files, nil
}

// writeSurfaces writes the folder anew.
func writeSurfaces(ctx context.Context, root string) error {
	files, err := surfaceFiles(ctx, root)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, surfaceDir)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// checkSurfaces wants the folder to have what the modules export.
func checkSurfaces(ctx context.Context, root string) error {
	want, err := surfaceFiles(ctx, root)
	if err != nil {
		return err
	}
	have := make(map[string]string)
	entries, err := os.ReadDir(filepath.Join(root, surfaceDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(root, surfaceDir, entry.Name()))
		if err != nil {
			return err
		}
		have[entry.Name()] = string(data)
	}
	names := slices.Sorted(maps.Keys(want))
	for name := range have {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var changes []string
	for _, name := range names {
		changes = append(changes, lineChanges(have[name], want[name])...)
		if len(changes) == 0 && have[name] != want[name] {
			changes = append(changes, "  "+surfaceDir+"/"+name+" is not as it would be written")
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return fmt.Errorf("what others can import is not what the folder %s says; "+
		"if that is meant, run make api and commit it:\n%s", surfaceDir,
		strings.Join(changes, "\n"))
}

// lineChanges returns the lines that are in one text only.
func lineChanges(before, after string) (changes []string) {
	had, has := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range had {
		if !slices.Contains(has, line) {
			changes = append(changes, "- "+line)
		}
	}
	for _, line := range has {
		if !slices.Contains(had, line) {
			changes = append(changes, "+ "+line)
		}
	}
	return changes
}

// linesOf returns a line for each thing that others can name in a package.
func linesOf(p *types.Package) (lines []string) {
	short := func(path string) string {
		return strings.TrimPrefix(path, strings.TrimSuffix(rootPath, "holdfast"))
	}
	w := &surfaceWriter{prefix: "pkg " + short(p.Path()) + ", ",
		qualify: func(other *types.Package) string {
			if other == p {
				return ""
			}
			return short(other.Path())
		}}
	for _, name := range p.Scope().Names() {
		if object := p.Scope().Lookup(name); object.Exported() {
			w.object(object)
		}
	}
	return w.lines
}

// surfaceWriter writes the lines of a package.
type surfaceWriter struct {
	prefix  string
	qualify types.Qualifier
	lines   []string
}

func (w *surfaceWriter) line(format string, args ...any) {
	w.lines = append(w.lines, w.prefix+fmt.Sprintf(format, args...))
}

func (w *surfaceWriter) typeText(t types.Type) string { return types.TypeString(t, w.qualify) }

func (w *surfaceWriter) object(object types.Object) {
	switch o := object.(type) {
	case *types.Const:
		w.line("const %s %s = %s", o.Name(), w.typeText(o.Type()), o.Val().ExactString())
	case *types.Var:
		w.line("var %s %s", o.Name(), w.typeText(o.Type()))
	case *types.Func:
		w.line("func %s%s", o.Name(), w.signature(o.Type()))
	case *types.TypeName:
		if o.IsAlias() {
			w.line("type %s = %s", o.Name(), w.typeText(types.Unalias(o.Type())))
			return
		}
		w.named(o)
	}
}

// signature writes a function's type without the names of its parameters, which callers do not use.
func (w *surfaceWriter) signature(t types.Type) string {
	s := t.(*types.Signature)
	unnamed := func(tuple *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range tuple.Variables() {
			vars = append(vars, types.NewParam(token.NoPos, nil, "", v.Type()))
		}
		return types.NewTuple(vars...)
	}
	if s.TypeParams().Len() == 0 { // those belong to one signature
		s = types.NewSignatureType(nil, nil, nil, unnamed(s.Params()), unnamed(s.Results()),
			s.Variadic())
	}
	var text bytes.Buffer
	types.WriteSignature(&text, s, w.qualify)
	return text.String()
}

// named writes a type that is defined here, its fields and its methods.
func (w *surfaceWriter) named(o *types.TypeName) {
	name := o.Name()
	switch u := o.Type().Underlying().(type) {
	case *types.Struct:
		w.line("type %s struct", w.typeText(o.Type()))
		hidden := false
		for f := range u.Fields() {
			switch {
			case !f.Exported():
				hidden = true
			case f.Embedded():
				w.line("type %s struct, embedded %s", name, w.typeText(f.Type()))
			default:
				w.line("type %s struct, %s %s", name, f.Name(), w.typeText(f.Type()))
			}
		}
		if hidden {
			w.line("type %s struct, unexported fields", name)
		}
	case *types.Interface:
		w.line("type %s interface", w.typeText(o.Type()))
		hidden := false
		for m := range u.Methods() {
			if m.Exported() {
				w.line("type %s interface, %s%s", name, m.Name(), w.signature(m.Type()))
			} else {
				hidden = true
			}
		}
		if hidden {
			w.line("type %s interface, unexported methods", name)
		}
		return
	default:
		w.line("type %s %s", w.typeText(o.Type()), w.typeText(u))
	}
	values := types.NewMethodSet(o.Type())
	for selection := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
		if !selection.Obj().Exported() {
			continue
		}
		receiver := "*" + name
		if values.Lookup(selection.Obj().Pkg(), selection.Obj().Name()) != nil {
			receiver = name
		}
		w.line("method (%s) %s%s", receiver, selection.Obj().Name(), w.signature(selection.Type()))
	}
}
