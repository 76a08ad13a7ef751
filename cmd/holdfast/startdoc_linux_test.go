package main_test

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestStartDocument does what docs/start.md says, in one shell from top to bottom, as TestConsoles
// does with the README: it saves the program and the script where the text says so, runs them as it
// says, and compares what they print.
func TestStartDocument(t *testing.T) {
	t.Parallel()
	clone, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	shell := newReader(t)
	t.Cleanup(func() { // if a block failed before the last one, which stops the server
		_ = exec.Command("redis-cli", "-p", shell.here.Replace("6390"), "shutdown", "nosave").Run()
	})
	// The program is built like the command, of packages that are compiled already. The command is
	// there.
	shell.say(`export GOFLAGS="$GOFLAGS ` + strings.Join(buildFlags, " ") + `"
go() { case $* in *" ./cmd/holdfast") cp "$HOLDFAST" holdfast;; *) command go "$@";; esac; }`)
	save := func(name string, lines []string) {
		t.Helper()
		text := []byte(shell.here.Replace(strings.Join(lines, "\n") + "\n"))
		if err := os.WriteFile(filepath.Join(shell.dir, "ledger", name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) != ".go" {
			return
		}
		if formatted, err := format.Source(text); err != nil || !bytes.Equal(formatted, text) {
			t.Errorf("%s is not formatted: %v", name, err)
		}
	}
	for _, b := range blocksOf(t, "docs/start.md") {
		switch b.kind {
		case "console":
			for i, line := range b.lines {
				b.lines[i] = strings.ReplaceAll(line, "../holdfast", clone)
			}
			shell.run(b.lines)
		case "go":
			save("main.go", b.lines)
		case "sh":
			save("add.sh", b.lines)
		case "text": // git clone
		default:
			t.Errorf("a block of kind %q, which nobody runs: %q", b.kind, b.lines)
		}
	}
}
