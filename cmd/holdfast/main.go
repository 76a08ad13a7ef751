// Command holdfast puts a lock around a program. Many callers may start it under the same name, on
// one machine or on many; one of them runs at a time.
//
//	holdfast run nightly -- /usr/local/bin/backup --full
//
// See holdfast run --help.
package main

import (
	"os"
	"runtime"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/arguments"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
)

func main() {
	// The program nearly always waits, and does one thing after the other. More threads would be
	// woken in vain, a hundred times for a command that takes a millisecond.
	runtime.GOMAXPROCS(1)
	os.Exit(cli.Main(arguments.Take(), os.Stdout, os.Stderr))
}
