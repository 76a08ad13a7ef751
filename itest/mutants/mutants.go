// Package mutants breaks the library on purpose. A patch in this folder says what is replaced by what in which files; the go command
// applies it while it builds, and the files stay as they are.
package mutants

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Skewed is the patch that lets a client read a wall clock which is set forward and back all the time. It is a fault and no mutant: every
// promise has to hold.
const Skewed = "skewed-clocks"

//go:embed *.patch
var patches embed.FS

// Overlay applies patches, named without their ending, to copies of files in dir, and gives the file that go build wants with -overlay. It
// fails if a patch does not fit: the code has changed then, and the patch has to.
func Overlay(dir string, names ...string) (path string, err error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/holdfast-go/holdfast").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	root := strings.TrimSpace(string(out))
	replaced := make(map[string]string) // file of the repository: the copy
	for _, name := range names {
		text, err := patches.ReadFile(name + ".patch")
		if err != nil {
			return "", err
		}
		changes, err := parse(text)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		for _, c := range changes {
			original := filepath.Join(root, filepath.FromSlash(c.file))
			copied := filepath.Join(dir, strings.ReplaceAll(c.file, "/", "_"))
			source := original
			if replaced[original] != "" {
				source = copied
			}
			data, err := os.ReadFile(source)
			if err != nil {
				return "", err
			}
			if n := bytes.Count(data, c.old); n != 1 {
				return "", fmt.Errorf("%s: this is %d times in %s, want once: the code has changed, and the patch has to\n%s", name, n, c.file, c.old)
			}
			if err := os.WriteFile(copied, bytes.Replace(data, c.old, c.new, 1), 0o644); err != nil {
				return "", err
			}
			replaced[original] = copied
		}
	}
	description, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, description, 0o644)
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
		// A line may go on behind what is given of it.
		changes[i].old = bytes.TrimSuffix(c.old, []byte("\n"))
		changes[i].new = bytes.TrimSuffix(c.new, []byte("\n"))
	}
	if len(changes) == 0 || into != nil {
		return nil, errors.New("not complete")
	}
	return changes, nil
}
