package mutants_test

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/internal/patch"
)

// Patches follow the code: whoever changes what one of them replaces has to change it as well.
func TestPatchesFit(t *testing.T) {
	if err := patch.Check(os.DirFS(".")); err != nil {
		t.Error(err)
	}
}
