package backendurl

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// PostgresLocks opens locks in PostgreSQL.
type PostgresLocks struct {
	Validate func(address string) error // without connecting
	Open     func(ctx context.Context, address string, reads bool) (driver.Backend, error)
}

// PostgresDriver is nil in the program holdfast, which has no driver: it calls holdfast-postgres.
var PostgresDriver *PostgresLocks

// NeedsPostgres reports whether only holdfast-postgres can open the address, and this program is
// not that.
func (a *Address) NeedsPostgres() bool { return a.postgres && PostgresDriver == nil }

// postgresLocks returns the scheme of locks in a database.
func postgresLocks(name string) scheme {
	s := readScheme(name, "[user[:password]@]host[:port][,host[:port]...]/database",
		map[string]string{
			"prefix":   prefixHelp + "; none unless set",
			"create":   "true to make the tables unless they are there; false unless set",
			"durable":  "always if the server loses no commit in a crash or takeover",
			"host":     "directory of the server's socket, in place of a host",
			"passfile": "file with passwords; ~/.pgpass unless set",
			"sslmode": "disable, prefer, require, verify-ca or verify-full; prefer unless set, " +
				"which does not verify the server",
			"sslrootcert": "file with the certificates of the authorities to trust",
			"sslcert":     "file with the certificate of the client",
			"sslkey":      "file with the key of the client",
		}, func(address string) error {
			if PostgresDriver == nil {
				return nil // the other program looks
			}
			return PostgresDriver.Validate(address)
		}, func(ctx context.Context, address string, h how) (driver.Backend, error) {
			if PostgresDriver == nil {
				return nil, errors.New("this program has no driver for it")
			}
			b, err := PostgresDriver.Open(ctx, address, h.reads)
			if err != nil {
				return nil, inOurWords{err}
			}
			return b, nil
		})
	s.prefix = "" // the tables are for nothing else
	s.postgres = true
	return s
}
