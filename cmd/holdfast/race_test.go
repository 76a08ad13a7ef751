//go:build race && (darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main_test

// With the race detector in the tests there is one in the command as well.
var buildFlags = []string{"-race"}
