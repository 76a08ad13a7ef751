//go:build !unix

package backendurl

import (
	"os"
	"path/filepath"
)

// userDir checks nothing: os.TempDir is the user's own on these systems.
func userDir() (string, error) {
	dir := filepath.Join(os.TempDir(), "holdfast")
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return "", err
	}
	return dir, nil
}
