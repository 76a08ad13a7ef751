//go:build unix && !linux

package testserver

import "syscall"

// dieWithParent does nothing: there is no such signal. A test stops what it starts, unless it is
// killed.
func dieWithParent(*syscall.SysProcAttr) {}
