package memhold_test

import (
	"os"
	"strings"
	"testing"
)

// TestTestingDocument: the Go code of docs/testing.md, put together, is publish_test.go, so it is
// compiled and run with the tests of this package.
func TestTestingDocument(t *testing.T) {
	const document, program = "../docs/testing.md", "publish_test.go"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for i, part := range strings.Split("\n"+string(text), "\n```") {
		kind, block, _ := strings.Cut(part, "\n")
		switch {
		case i%2 == 0: // prose
		case kind == "go":
			shown = append(shown, block+"\n")
		default:
			t.Errorf("nobody runs a block of kind %q", kind)
		}
	}
	got := strings.Replace(strings.Join(shown, "\n"), "package site\n", "package memhold_test\n", 1)
	if got != string(code) {
		t.Errorf("the code of %s is not that of %s: copy it, with the name of this package:\n%s",
			document, program, got)
	}
}
