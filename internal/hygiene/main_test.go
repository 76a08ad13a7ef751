package hygiene

import (
	"fmt"
	"os"
	"testing"
)

// The checks look at the whole repository, from its root.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var err error
	if neverReleased, err = readNeverReleased(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
