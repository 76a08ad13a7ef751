package mutants_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/itest/mutants"
)

// Patches follow the code: whoever changes what one of them replaces has to change it as well.
func TestPatchesFit(t *testing.T) {
	files, err := filepath.Glob("*.patch")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if _, err := mutants.Overlay(t.TempDir(), strings.TrimSuffix(file, ".patch")); err != nil {
			t.Error(err)
		}
	}
}

func TestPatchThatIsNotThere(t *testing.T) {
	if _, err := mutants.Overlay(t.TempDir(), "nothing"); err == nil {
		t.Error("applied")
	}
}
