//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fence

// FlockWaits returns how many writers of this process wait for the lock of a file.
func FlockWaits() int64 { return flockWaits.Load() }

// Place returns where a file is to be made that was not there a moment ago.
func Place(path string) (string, error) { return place(path) }
