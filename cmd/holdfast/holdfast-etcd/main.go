// Command holdfast-etcd is holdfast with the client of etcd. It is a program of its own, which
// holdfast becomes where an address begins with etcd, since that client costs each start of the
// program that has it. What it takes is what holdfast takes. It refuses to be called by holdfast in
// another version.
package main

import (
	"context"
	"os"
	"runtime"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/arguments"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdhold"
)

func main() {
	runtime.GOMAXPROCS(1) // as in holdfast
	backendurl.Clients[backendurl.EtcdProgram] = backendurl.Client{
		Validate: etcdhold.Validate,
		Open: func(ctx context.Context, address string, _ bool) (driver.Backend, error) {
			b, err := etcdhold.Open(ctx, address)
			if err != nil {
				return nil, err // not b: a nil pointer in an interface is not nil
			}
			return b, nil
		},
	}
	os.Exit(cli.Main(arguments.Take(), os.Stdout, os.Stderr))
}
