//go:build !unix

package backendurl

import (
	"os"
	"path/filepath"
)

// userDir relies on the system's directory for the user's temporary files being the user's own.
func userDir() (string, error) {
	dir := filepath.Join(os.TempDir(), "holdfast")
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return "", err
	}
	return dir, nil
}
