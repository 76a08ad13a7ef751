package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDrillDocument does what docs/drill.md says, as TestConsoles does, and looks at the board
// beside it: what a command finds is there, too, until it is put right.
func TestDrillDocument(t *testing.T) {
	t.Parallel()
	shell := newReader(t)
	if err := os.Symlink(holdfastPath, filepath.Join(shell.dir, "holdfast")); err != nil {
		t.Fatal(err)
	}
	shell.say(`export PATH="$PWD:$PATH"`)
	// What the board shows after each block of the document. A page that is opened then is sent all
	// that is there.
	shows := [][]string{
		{`"rows":[]`, `"state":"up"`},
		{`"name":"report"`, `"who":"sleep"`}, // with the column Held for
		nil,
		{`"rows":[]`},
		nil,
		{`"name":"invoice/7"`, `"leaks":["no-expiry"]`},
		{`"rows":[]`},
		nil,
		{`"state":"down"`}, // and as a finding, which takes half a minute at most
		nil,
		nil,
		{`"name":"ledger"`, `possible deadlock of 4 processes`},
	}
	var b *board
	blocks := blocksOf(t, "docs/drill.md")
	if len(blocks) != len(shows)+1 {
		t.Fatalf("%d blocks, want %d", len(blocks), len(shows)+1)
	}
	for i, block := range blocks {
		if block.kind != "console" {
			t.Fatalf("a block of kind %q, which nobody runs: %q", block.kind, block.lines)
		}
		shell.run(block.lines)
		if i == len(shows) {
			break // the servers are stopped
		}
		if b == nil {
			_, at, _ := strings.Cut(block.lines[4], "'")
			b = (&site{t: t}).board(shell.here.Replace(strings.TrimSuffix(at, "'")))
		}
		if shows[i] != nil {
			b.follows(shows[i]...)
		}
	}
}
