// Command requirements writes docs/requirements.md: each requirement with the tests that show it,
// found by their names, and, where it is a limit, with the place where users are told.
//
//	go run ./itest/requirements          print it
//	go run ./itest/requirements -write   write it to the root of the repository
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	write := flag.Bool("write", false, "write the file instead of printing it")
	flag.Parse()
	if err := run(*write); err != nil {
		fmt.Fprintln(os.Stderr, "requirements:", err)
		os.Exit(1)
	}
}

func run(write bool) error {
	root, err := repository()
	if err != nil {
		return err
	}
	tests, err := findTests(os.DirFS(root))
	if err != nil {
		return err
	}
	text := render(tests)
	if !write {
		_, err := os.Stdout.Write(text)
		return err
	}
	return os.WriteFile(filepath.Join(root, fileName), text, 0o644)
}

// repository is the directory with go.work, here or above.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", fmt.Errorf("no go.work here or above: run it in the repository")
		}
		dir = filepath.Dir(dir)
	}
}
