// Command holdfast-fence is the part of holdfast fence that knows databases. Holdfast calls it. It
// is a program of its own because the drivers of databases make each start slower. It takes the
// arguments of holdfast fence, and refuses to be called by another version of holdfast.
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
