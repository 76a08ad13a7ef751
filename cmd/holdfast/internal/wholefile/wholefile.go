// Package wholefile replaces files as a whole, so that nobody reads half of one.
package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Check returns an error unless there is a regular file at the path, or nothing. Whoever replaces
// anything else by a file takes it away from all others: for root, that may be a device of the
// machine.
//
// A symbolic link is refused, whatever it leads to. A rename replaces the link itself, and
// /dev/stdout is one. To follow it is no better: in a folder where others may write, as /tmp, they
// could choose by a link which file is replaced, and behind /dev/stdout may be a log. A link among
// the folders of the path is no obstacle: /var/run is one.
func Check(path string) error {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() == fs.ModeSymlink:
		return refusal(path, "a symbolic link")
	case !info.Mode().IsRegular():
		return refusal(path, "no regular file")
	}
	return nil
}

func refusal(path, kind string) error {
	return fmt.Errorf("%q is %s: name a regular file, or a path where nothing is", path, kind)
}

// Write has the text in a file at that path, with that mode, or changes nothing and returns an
// error. What is there is replaced in one step, if Check allows it.
func Write(path string, mode fs.FileMode, text []byte) (err error) {
	if err := Check(path); err != nil {
		return err
	}
	// In the same folder, because a file is renamed within a file system only.
	next, err := os.CreateTemp(filepath.Dir(path), ".holdfast-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(next.Name())
		}
	}()
	_, err = next.Write(text)
	if err = errors.Join(err, next.Chmod(mode), next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}

// Remove removes the file at the path, if there is one. What Check refuses stays, and is an error.
func Remove(path string) error {
	err := Check(path)
	if err == nil {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
