//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

// bootMark tells boots apart. The zero one does not.
type bootMark [16]byte

// clockMark tells clocks apart. The zero one says that nothing is known.
type clockMark [4]byte
