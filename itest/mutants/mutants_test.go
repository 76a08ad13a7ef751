package mutants_test

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/internal/patch"
)

// Patches follow the code: whoever changes code that a patch replaces has to change the patch, too.
func TestPatchesFit(t *testing.T) {
	if err := patch.Check(os.DirFS(".")); err != nil {
		t.Error(err)
	}
}
