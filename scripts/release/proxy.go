package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// fileProxy is a folder of modules as the go command reads it behind GOPROXY=file://.
type fileProxy string

// add puts a version of a module into the folder. create writes the module's zip. The name of the
// zip is returned.
func (p fileProxy) add(v module.Version, goMod []byte, create func(io.Writer) error) (string,
	error) {
	escaped, err := module.EscapePath(v.Path)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(string(p), filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	info, err := json.Marshal(map[string]any{"Version": v.Version, "Time": time.Unix(0, 0).UTC()})
	if err != nil {
		return "", err
	}
	for name, data := range map[string][]byte{
		"list": []byte(v.Version + "\n"), v.Version + ".info": info, v.Version + ".mod": goMod,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", err
		}
	}
	name := filepath.Join(dir, v.Version+".zip")
	file, err := os.Create(name)
	if err != nil {
		return "", err
	}
	if err := create(file); err != nil {
		_ = file.Close() // the first error says what is wrong
		return "", fmt.Errorf("zip of %s: %w", v, err)
	}
	return name, file.Close()
}

// addDir puts a module into the folder as it is in its directory.
func (p fileProxy) addDir(v module.Version, dir string) (sum, error) {
	goMod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return sum{}, err
	}
	name, err := p.add(v, goMod, func(w io.Writer) error { return zip.CreateFromDir(w, v, dir) })
	if err != nil {
		return sum{}, err
	}
	return sumOf(name, goMod)
}
