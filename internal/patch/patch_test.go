package patch_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/holdfast-go/holdfast/internal/patch"
)

// TestCheck: patches that cannot break anything are noticed.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"good": {"# Says so.\ntoken.go\n<<<<\npackage holdfast\n====\npackage holdfast // broken\n>>>>\n", ""},
		"does not fit": {"token.go\n<<<<\npackage nothing\n====\n>>>>\n",
			"this is 0 times in token.go, want once"},
		"is there twice": {"token.go\n<<<<\nfunc\n====\n>>>>\n", "times in token.go, want once"},
		"does not compile": {"token.go\n<<<<\ntype Token =\n====\nvar x int = nil\ntype Token =\n>>>>\n",
			"cannot use nil as int value"},
		"has no end":         {"token.go\n<<<<\npackage holdfast\n====\n", "not complete"},
		"replaces nothing":   {"token.go\n<<<<\n====\nx\n>>>>\n", "place 1 names no file, or nothing to replace"},
		"is of another file": {"nothing.go\n<<<<\nx\n====\n>>>>\n", "nothing.go: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			err := patch.Check(fstest.MapFS{"broken.patch": {Data: []byte(test.text)}})
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) ||
				!strings.HasPrefix(err.Error(), "broken.patch: ")):
				t.Errorf("%v; want broken.patch: ...%s", err, test.want)
			}
		})
	}
	if err := patch.Check(fstest.MapFS{}); err == nil {
		t.Error("no patches are fine")
	}
	if _, err := patch.Overlay(t.TempDir(), fstest.MapFS{}, "nothing"); err == nil {
		t.Error("a patch that is not there is applied")
	}
}
