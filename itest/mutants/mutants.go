// Package mutants breaks the library on purpose: the patches in this folder, in the form of package
// [github.com/holdfast-go/holdfast/internal/patch].
package mutants

import (
	"embed"

	"github.com/holdfast-go/holdfast/internal/patch"
)

// Skewed is the patch that lets a client read a wall clock which is set forward and back all the
// time. It is a fault and no mutant: every promise has to hold.
const Skewed = "skewed-clocks"

//go:embed *.patch
var patches embed.FS

// Overlay applies patches, named without their ending, to copies of files in dir, and returns the
// file for go build -overlay. It fails if a patch does not fit.
func Overlay(dir string, names ...string) (path string, err error) {
	return patch.Overlay(dir, patches, names...)
}
