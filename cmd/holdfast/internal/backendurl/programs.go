package backendurl

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Client is a client that makes each start of a program slower, so it is in a program of its own.
type Client struct {
	Validate func(address string) error // without connecting
	// Open opens a backend. If reads is set, the backend only reads, where that makes a difference.
	Open func(ctx context.Context, address string, reads bool) (driver.Backend, error)
}

// Unbounded is the time for a request of a backend that only reads, where the client wants one:
// whoever looks bounds each call by how long the servers may say nothing.
const Unbounded = 24 * time.Hour

// Clients are the clients that this program has, by the name of the program that was made for them.
// holdfast has none. They are set before anything else happens.
var Clients = make(map[string]Client)

// The programs that lock where a client of its own is needed.
const (
	EtcdProgram      = "holdfast-etcd"
	PostgresProgram  = "holdfast-postgres"
	ZooKeeperProgram = "holdfast-zookeeper"
)

// Program returns the name of the program that locks at the address, or "" if this one does.
func (a *Address) Program() string {
	if _, ours := Clients[a.program]; ours {
		return ""
	}
	return a.program
}

// clientScheme returns a scheme whose addresses the client of a program opens.
func clientScheme(program, name, rest string, params map[string]string) scheme {
	s := readScheme(name, rest, params, func(address string) error {
		client, ours := Clients[program]
		if !ours {
			return nil // the other program looks
		}
		return client.Validate(address)
	}, func(ctx context.Context, address string, h how) (driver.Backend, error) {
		client, ours := Clients[program]
		if !ours {
			return nil, errors.New("it needs the program " + program)
		}
		b, err := client.Open(ctx, address, h.reads)
		if err != nil {
			return nil, inOurWords{err}
		}
		return b, nil
	})
	s.program = program
	s.prefix = "" // nothing but locks is kept there
	return s
}
