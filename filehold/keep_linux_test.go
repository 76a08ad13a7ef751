package filehold_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestCleanersKeepEveryFile checks that every file, named pipes included, is sticky: cleaners of
// temporary directories do not remove such files.
func TestCleanersKeepEveryFile(t *testing.T) {
	dir := t.TempDir()
	acquire(t, open(t, dir), claim("k"))
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		info, err := entry.Info()
		if err == nil && info.Mode()&os.ModeSticky == 0 {
			t.Errorf("%s: mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%d files, %v", files, err)
	}
}
