// Command holdfast puts a lock around a program: of all who start it under the same name, on one machine or on
// many, one runs it at a time.
//
//	holdfast run nightly -- /usr/local/bin/backup --full
//
// See holdfast run --help.
package main

import (
	"os"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
