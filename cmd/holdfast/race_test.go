//go:build race && (darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main_test

// If the tests have the race detector, the command has it too.
var buildFlags = []string{"-race"}
