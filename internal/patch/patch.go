// Package patch breaks the library on purpose, so that tests can show that they notice. A patch
// says what is replaced by what in which files. The go command applies it while it builds, and the
// files stay as they are.
package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Extension is how the names of files with patches end.
const Extension = ".patch"

// Root returns the directory of the repository.
func Root() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/holdfast-go/holdfast").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Overlay applies patches, named without their extension, to copies of files in dir, and returns
// the file that go build wants with -overlay. It fails if a patch does not fit. Then the code has
// changed, and the patch has to change too.
func Overlay(dir string, patches fs.FS, names ...string) (path string, err error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	replaced := make(map[string]string) // file of the repository: the copy
	for _, name := range names {
		text, err := fs.ReadFile(patches, name+Extension)
		if err != nil {
			return "", err
		}
		changes, err := parse(text)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		for _, c := range changes {
			if err := c.apply(root, dir, replaced); err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	path = filepath.Join(dir, "overlay.json")
	return path, writeOverlay(path, replaced)
}

// overlay is the file that go build wants with -overlay.
type overlay struct{ Replace map[string]string }

func writeOverlay(path string, replaced map[string]string) error {
	description, err := json.Marshal(overlay{replaced})
	if err != nil {
		return err
	}
	return os.WriteFile(path, description, 0o644)
}

// Build builds the packages whose code an overlay changes. A patch can fit and not compile: a
// variable that it leaves unused is enough.
func Build(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var o overlay
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	var packages []string
	for file := range o.Replace {
		if filepath.Ext(file) == ".go" { // not an embedded one
			packages = append(packages, filepath.Dir(file))
		}
	}
	if len(packages) == 0 {
		return nil
	}
	slices.Sort(packages)
	arguments := append([]string{"build", "-overlay", path, "-o", os.DevNull},
		slices.Compact(packages)...)
	if out, err := exec.Command("go", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Check applies and builds every patch, and returns what is wrong with those that do not fit or do
// not compile.
func Check(patches fs.FS) error {
	files, err := fs.Glob(patches, "*"+Extension)
	if err == nil && len(files) == 0 {
		err = errors.New("there are no patches")
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "holdfast-patches")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var all []error
	for _, file := range files {
		path, err := Overlay(dir, patches, strings.TrimSuffix(file, Extension))
		if err == nil {
			err = Build(path)
		}
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", file, err))
		}
	}
	return errors.Join(all...)
}

// apply replaces one place, in the copy if there is one.
func (c *change) apply(root, dir string, replaced map[string]string) error {
	original := filepath.Join(root, filepath.FromSlash(c.file))
	copied := filepath.Join(dir, strings.ReplaceAll(c.file, "/", "_"))
	source := original
	if replaced[original] != "" {
		source = copied
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if n := bytes.Count(data, c.old); n != 1 {
		return fmt.Errorf(
			"this is %d times in %s, want once: the code has changed, and the patch has to\n%s",
			n, c.file, c.old)
	}
	replaced[original] = copied
	return os.WriteFile(copied, bytes.Replace(data, c.old, c.new, 1), 0o644)
}

// change is one place of a patch.
type change struct {
	file     string // from the root of the repository
	old, new []byte
}

// parse reads a patch: comments, names of files, and for each file what is replaced by what.
//
//	# What it breaks.
//	quorum/acquire.go
//	<<<<
//	old lines
//	====
//	new lines
//	>>>>
func parse(text []byte) (changes []change, err error) {
	file, into := "", (*[]byte)(nil)
	for line := range bytes.Lines(text) {
		switch word := strings.TrimSpace(string(line)); {
		case into == nil && (word == "" || strings.HasPrefix(word, "#")):
		case into == nil && word == "<<<<":
			changes = append(changes, change{file: file})
			into = &changes[len(changes)-1].old
		case into == nil:
			file = word
		case word == "====":
			into = &changes[len(changes)-1].new
		case word == ">>>>":
			into = nil
		default:
			*into = append(*into, line...)
		}
	}
	for i, c := range changes {
		if c.file == "" || len(c.old) == 0 {
			return nil, fmt.Errorf("place %d names no file, or nothing to replace", i+1)
		}
		// The last line of old may be only the beginning of a line.
		changes[i].old = bytes.TrimSuffix(c.old, []byte("\n"))
		changes[i].new = bytes.TrimSuffix(c.new, []byte("\n"))
	}
	if len(changes) == 0 || into != nil {
		return nil, errors.New("not complete")
	}
	return changes, nil
}
