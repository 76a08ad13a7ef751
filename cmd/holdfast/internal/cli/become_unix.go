//go:build unix

package cli

import "syscall"

// become replaces this program by another one. It returns only if that fails.
func become(path string, args, env []string) error { return syscall.Exec(path, args, env) }
