// Command holdfast-postgres is holdfast with the driver of PostgreSQL. It is a program of its own,
// which holdfast calls for locks in a database, since that driver costs each start of the program
// that has it. What it takes is what holdfast takes. It refuses to be called by holdfast in another
// version.
package main

import (
	"context"
	"os"
	"runtime"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/arguments"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pghold"
)

func main() {
	runtime.GOMAXPROCS(1) // as holdfast does
	backendurl.Clients[backendurl.PostgresProgram] = backendurl.Client{
		Validate: pghold.Validate,
		Open: func(ctx context.Context, address string, reads bool) (driver.Backend, error) {
			var options []pghold.Option
			if reads {
				options = append(options, pghold.WithReadOnly())
			}
			b, err := pghold.Open(ctx, address, options...)
			if err != nil {
				return nil, err // not b: a nil pointer in an interface is not nil
			}
			return b, nil
		},
	}
	os.Exit(cli.Main(arguments.Take(), os.Stdout, os.Stderr))
}
