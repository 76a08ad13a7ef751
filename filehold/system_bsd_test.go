//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package filehold_test

import "runtime"

const oneClock = runtime.GOOS == "darwin"
