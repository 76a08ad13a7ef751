// Command holdfast-zookeeper is holdfast with the client of ZooKeeper. It is a program of its own,
// which holdfast becomes where an address begins with zookeeper, since that client costs each start
// of the program that has it. What it takes is what holdfast takes. It refuses to be called by
// holdfast in another version.
package main

import (
	"context"
	"os"
	"runtime"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/arguments"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zkhold"
)

func main() {
	runtime.GOMAXPROCS(1) // as in holdfast
	backendurl.Clients[backendurl.ZooKeeperProgram] = backendurl.Client{
		Validate: zkhold.Validate,
		Open: func(ctx context.Context, address string, _ bool) (driver.Backend, error) {
			b, err := zkhold.Open(ctx, address)
			if err != nil {
				return nil, err // not b: a nil pointer in an interface is not nil
			}
			return b, nil
		},
	}
	os.Exit(cli.Main(arguments.Take(), os.Stdout, os.Stderr))
}
