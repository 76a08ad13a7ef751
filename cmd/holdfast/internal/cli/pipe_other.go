//go:build !unix

package cli

// ignoreBrokenPipe does nothing: these systems have no SIGPIPE.
func ignoreBrokenPipe() {}
