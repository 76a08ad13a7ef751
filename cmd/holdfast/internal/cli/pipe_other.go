//go:build !unix

package cli

// ignoreBrokenPipe does nothing here: there is no signal.
func ignoreBrokenPipe() (undo func()) { return func() {} }
