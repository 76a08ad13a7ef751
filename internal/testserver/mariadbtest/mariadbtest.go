//go:build unix

// Package mariadbtest starts real MariaDB servers for tests: see package testserver.
package mariadbtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Server is a MariaDB that several tests share. Kill is a crash. It has an empty database test, and
// root needs no password.
type Server struct {
	*testserver.Process
	Socket string // path
}

// Start starts a MariaDB on new data, on a socket in its own directory. Remove ends it.
func Start() (Server, error) {
	return start(func(Server) error { return nil })
}

// StartTLS is Start for a server that also listens on the port of 127.0.0.1. ca, cert and key are
// files in PEM form: the authority of clients, and the server's own certificate and key. To make
// TLS a duty for a user, create the user so.
func StartTLS(port int, ca, cert, key string) (Server, error) {
	return start(func(s Server) error {
		s.Args = append(s.Args, "--skip-networking=0", "--bind-address=127.0.0.1",
			"--port="+strconv.Itoa(port), "--skip-name-resolve")
		for setting, path := range map[string]string{"--ssl-ca=": ca, "--ssl-cert=": cert,
			"--ssl-key=": key} {
			path, err := s.Copy(path)
			if err != nil {
				return err
			}
			s.Args = append(s.Args, setting+path)
		}
		return nil
	})
}

// start prepares a server, calls change, and starts the server.
func start(change func(Server) error) (Server, error) {
	install, err := testserver.Find("mariadb-install-db", "mariadb-server", "/usr/bin")
	if err != nil {
		return Server{}, err
	}
	daemon, err := testserver.Find("mariadbd", "mariadb-server", "/usr/sbin")
	if err != nil {
		return Server{}, err
	}
	// Follow links: these programs look for their files beside themselves.
	for _, path := range []*string{&install, &daemon} {
		if *path, err = filepath.EvalSymlinks(*path); err != nil {
			return Server{}, err
		}
	}
	p, err := testserver.Prepare("mysql")
	if err != nil {
		return Server{}, err
	}
	s := Server{p, filepath.Join(p.Dir, "socket")}
	data := "--datadir=" + filepath.Join(p.Dir, "data")
	if out, err := p.Command(install, "--no-defaults", data,
		"--auth-root-authentication-method=normal",
		"--innodb-log-file-size=8M").CombinedOutput(); err != nil {
		return Server{}, errors.Join(fmt.Errorf("mariadb-install-db: %w: %s", err, out), p.Remove())
	}
	p.Path = daemon
	p.Args = []string{"--no-defaults", data, "--socket=" + s.Socket, "--skip-networking",
		"--innodb-flush-log-at-trx-commit=2",
		"--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M", "--lock-wait-timeout=60",
		"--innodb-lock-wait-timeout=60",
		"--pid-file=" + filepath.Join(p.Dir, "pid")}
	p.Ready = func() error { return answers(s.Socket) }
	if err := change(s); err != nil {
		return Server{}, errors.Join(err, p.Remove())
	}
	if err := p.Run(); err != nil {
		return Server{}, errors.Join(err, p.Remove())
	}
	return s, nil
}

// answers reads the greeting. It comes first, and from a server that is ready.
func answers(socket string) error {
	conn, err := net.DialTimeout("unix", socket, testserver.Patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testserver.Patience))
	var greeting [5]byte // the packet's length and number, and the protocol's version
	if _, err := io.ReadFull(conn, greeting[:]); err != nil {
		return err
	}
	if version := greeting[4]; version != 10 { // 255 is an error
		return fmt.Errorf("it greets with protocol %d; want 10", version)
	}
	return nil
}
