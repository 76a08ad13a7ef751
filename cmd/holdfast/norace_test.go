//go:build !race && (darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main_test

var buildFlags []string
