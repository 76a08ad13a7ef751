// Command holdfast-etcd is holdfast with the client of etcd. Holdfast becomes this program if an
// address begins with etcd. It is a program of its own because that client makes each start slower.
// It takes the arguments of holdfast, and refuses to be called by another version of holdfast.
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
		Open: func(ctx context.Context, address string, reads bool) (driver.Backend, error) {
			var options []etcdhold.Option
			if reads {
				options = append(options, etcdhold.WithTimeout(backendurl.Unbounded))
			}
			b, err := etcdhold.Open(ctx, address, options...)
			if err != nil {
				return nil, err // not b: a nil pointer in an interface is not nil
			}
			return b, nil
		},
	}
	os.Exit(cli.Main(arguments.Take(), os.Stdout, os.Stderr))
}
