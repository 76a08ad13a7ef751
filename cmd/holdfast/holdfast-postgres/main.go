// Command holdfast-postgres is holdfast with the driver of PostgreSQL. Holdfast becomes this
// program for locks in a database. It is a program of its own because that driver makes each start
// slower. It takes the arguments of holdfast, and refuses to be called by another version of
// holdfast.
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
