// Command holdfast-fence is the part of holdfast fence that knows databases. It is a program of its
// own, which holdfast calls, since the drivers of databases cost each start of the program that has
// them. What it takes is what holdfast fence takes. It refuses to be called by holdfast in another
// version.
package main

import (
	"os"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/arguments"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/sqlguard"
)

func main() {
	cli.OpenDatabase = func(at backendurl.Database, patience time.Duration) (cli.Database, error) {
		store, err := sqlguard.New(at, patience)
		if err != nil {
			return nil, err // not store: a nil pointer in an interface is not nil
		}
		return store, nil
	}
	os.Exit(cli.Main(append([]string{"fence"}, arguments.Take()...), os.Stdout, os.Stderr))
}
