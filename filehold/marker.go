//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	markerName = "holdfast"

	layout       = 4
	markerPrefix = "holdfast lock directory, layout "
	markerText   = markerPrefix + "4\n\n" +
		"Processes that use package filehold of Holdfast keep their locks here.\n" +
		"Do not remove single files: whoever holds a lock would lose it.\n"
)

// checkContent refuses a directory that is not ours, and reports whether it is marked as ours.
// Nothing has been written so far.
func (d *directory) checkContent() (known bool, err error) {
	if known, err := d.checkMarker(); known || err != nil {
		return known, err
	}
	names, err := namesIn(d.path)
	if err != nil {
		return false, d.wrap(err)
	}
	// The marker may be there by now. Then mark looks at it.
	ours := []string{markerName, fenceName, keysName, membersName}
	i := slices.IndexFunc(names, func(name string) bool { return !slices.Contains(ours, name) })
	if i < 0 {
		return false, nil
	}
	return false, d.fail(
		"holds other files (%q) and is no lock directory: use one that is empty or does not exist",
		names[i])
}

// checkMarker reports whether the directory is marked as ours, and fails if its layout is not the
// one that we know.
func (d *directory) checkMarker() (known bool, err error) {
	path := d.path + "/" + markerName
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var marker []byte
	if err == nil && info.Mode().IsRegular() { // a read of a named pipe might last for ever
		marker, err = os.ReadFile(path)
	}
	if err != nil {
		return false, d.wrap(err)
	}
	line, _, _ := strings.Cut(string(marker), "\n")
	number, found := strings.CutPrefix(line, markerPrefix)
	if !found {
		return false, d.fail("holds %q (mode %v) that does not say %q: "+
			"it is no lock directory, or damaged", markerName, info.Mode(), markerPrefix)
	}
	if number != strconv.Itoa(layout) {
		return false, d.fail("has layout %q, made by another version of Holdfast, and this one "+
			"understands layout %d: use the other version; or stop all processes that use it, and "+
			"only then remove the directory, or name another one for all of them: "+
			"who uses the one and who uses the other do not exclude each other", number, layout)
	}
	return true, nil
}

// mark makes the first ceiling, and then the marker in one step. Without a marker nothing in the
// directory is in force. A marker that is there after a power loss is whole. The marker gets its
// name by a hard link, because a link replaces no file: of two versions that make the directory at
// once, one sees the marker of the other.
func (d *directory) mark(temporary string) error {
	if err := d.makeFence(); err != nil {
		return err
	}
	// The ceiling is durable only if the directories that lead to it are. The marker tells later
	// processes that all of them are, so the syncs come first, even if a process that has died
	// since made the directories.
	if err := syncDir(filepath.Dir(d.path)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := syncDir(d.path); err != nil {
		return err
	}
	err := d.publish(temporary, d.path+"/"+markerName, []byte(markerText), true)
	if errors.Is(err, fs.ErrExist) {
		_, err = d.checkMarker()
	}
	return err
}
