//go:build unix && !linux

package testserver

// awaitStop does nothing: a process may run on for a moment.
func awaitStop(int) {}
