//go:build unix

package postgrestest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Bouncer is a PgBouncer in front of a server.
type Bouncer struct{ *testserver.Process }

const bouncerPort = 6432

// StartBouncer starts a PgBouncer in transaction mode, with two connections to the server, on a
// socket in its own directory. Remove ends it.
func StartBouncer(s Server) (Bouncer, error) {
	path, err := testserver.Find("pgbouncer", "pgbouncer", "/usr/sbin")
	if err != nil {
		return Bouncer{}, err
	}
	p, err := testserver.Prepare("postgres")
	if err != nil {
		return Bouncer{}, err
	}
	config := fmt.Sprintf(`[databases]
%s = host=%s port=%d user=%s
[pgbouncer]
pool_mode = transaction
default_pool_size = 2
auth_type = any
listen_addr =
listen_port = %d
unix_socket_dir = %s
`, database, s.Dir, s.port, user, bouncerPort, p.Dir)
	file := filepath.Join(p.Dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return Bouncer{}, errors.Join(err, p.Remove())
	}
	p.Path, p.Args = path, []string{file}
	p.Ready = func() error {
		return answers(filepath.Join(p.Dir, fmt.Sprintf(".s.PGSQL.%d", bouncerPort)))
	}
	if err := p.Run(); err != nil {
		return Bouncer{}, errors.Join(err, p.Remove())
	}
	return Bouncer{p}, nil
}

// DSN returns how clients reach it: keywords and values, as libpq reads them.
func (b Bouncer) DSN() string {
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", b.Dir, bouncerPort,
		user, database)
}
