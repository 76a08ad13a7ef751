//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// The directory fence/ bounds the tokens for good. It holds one file, and the file's name is the
// ceiling. A token is granted only if it is not above a ceiling that is durable. So after a power
// loss, counting goes on above all tokens that were granted (see counter).
//
// A process raises the ceiling: it renames the file and syncs the directory. A crash leaves one
// name or the other, and neither is less than a ceiling that was durable before. Of two processes
// that raise at once, the second finds the name that the first has given, so neither waits for the
// other. A rename takes no new block, so it goes on when the disk is full.

const (
	// ceilingStep is how far beyond the clock the ceiling is raised, in microseconds. With such a
	// step few grants wait for the disk.
	ceilingStep = 10 * 60 * 1e6

	// ceilingSlack is how far beyond a token it is raised at least.
	ceilingSlack = 16 << 20

	// maxToken keeps tokens exact in JSON.
	maxToken = 1<<53 - 1
)

var errFenceGone = errors.New(
	"directory \"fence\" does not hold the bound of the tokens any more, so tokens could go back: " +
		"make in it an empty file whose name is a number that no token was above, " +
		"and no copy of what was in it; " +
		"or remove the whole directory to begin anew")

// makeFence makes the first ceiling, durable.
func (d *directory) makeFence() error {
	if _, err := d.ceiling(); err == nil || !errors.Is(err, errFenceGone) {
		return err
	}
	fd, err := d.create(d.fence + "0")
	if err == nil {
		closeFile(fd)
		// Another process may have made and raised its own since.
		_, err = d.ceiling()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(d.fence)
}

// ceiling returns the ceiling, which need not be durable. A list that is read while the file gets
// another name may lack both names. Of several ceilings the lower ones are removed: one of them
// must not be in force when the highest is lost.
func (d *directory) ceiling() (uint64, error) {
	for range 100 {
		names, err := namesIn(d.fence)
		if err != nil {
			return 0, err
		}
		var values []uint64
		for _, name := range names {
			value, err := strconv.ParseUint(name, 10, 53)
			// it must be found under the same spelling
			if err == nil && strconv.FormatUint(value, 10) == name {
				values = append(values, value)
			}
		}
		if len(values) == 0 {
			continue
		}
		highest := slices.Max(values)
		for _, value := range values {
			if value < highest {
				removeFile(d.ceilingFile(value))
			}
		}
		return highest, nil
	}
	return 0, d.fail("%w: %w", errFenceGone, fs.ErrNotExist)
}

func (d *directory) ceilingFile(value uint64) string {
	return d.fence + strconv.FormatUint(value, 10)
}

// raiseCeiling makes the ceiling at least need, and durable. It returns what it is then.
func (d *directory) raiseCeiling(need uint64) (uint64, error) {
	for {
		old, err := d.ceiling()
		if err != nil {
			return 0, err
		}
		value := min(maxToken, max(need+ceilingSlack, clock.Microseconds()+ceilingStep))
		if old >= value {
			return old, syncDir(d.fence) // another process may not have synced it yet
		}
		err = renameFile(d.ceilingFile(old), d.ceilingFile(value))
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has raised it
		}
		if err != nil {
			return 0, err
		}
		return value, syncDir(d.fence)
	}
}
