//go:build unix && !linux

package testserver

// awaitStop does nothing: the state of threads is not known.
func awaitStop(int, <-chan struct{}) {}
