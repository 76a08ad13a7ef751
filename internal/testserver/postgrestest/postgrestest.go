//go:build unix

// Package postgrestest starts real PostgreSQL servers for tests: see package testserver.
package postgrestest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

const user, database = "holdfast", "postgres"

// Server is a PostgreSQL that several tests share. Kill is a crash: it writes no checkpoint.
type Server struct {
	*testserver.Process
	port int // the name of the socket has it, too
}

// Start starts a PostgreSQL on new data, on a socket in its own directory. Remove ends it.
func Start() (Server, error) {
	return start(5432, func(Server) error { return nil })
}

// access lets everybody in by the socket, and over TCP only with TLS. Over TCP, the user client
// needs a certificate with that name, and others need a password.
const access = `local   all all              trust
hostssl all client 127.0.0.1/32 cert
hostssl all all    127.0.0.1/32 scram-sha-256
`

// StartTLS is Start for a server that also listens on the port of 127.0.0.1, where it speaks only
// TLS. ca, cert and key are files in PEM form: the authority of clients, and the server's own
// certificate and key.
func StartTLS(port int, ca, cert, key string) (Server, error) {
	return start(port, func(s Server) error {
		s.Args = append(s.Args, "-c", "listen_addresses=127.0.0.1", "-c", "ssl=on")
		for setting, path := range map[string]string{"ssl_ca_file": ca, "ssl_cert_file": cert,
			"ssl_key_file": key} {
			path, err := s.Copy(path)
			if err != nil {
				return err
			}
			s.Args = append(s.Args, "-c", setting+"="+path)
		}
		return os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(access), 0o600)
	})
}

// start prepares a server, calls change, and starts the server.
func start(port int, change func(Server) error) (Server, error) {
	initdb, err := testserver.Find("initdb", "postgresql", "/usr/lib/postgresql/*/bin")
	if err != nil {
		return Server{}, err
	}
	// Follow links: the program looks for its files beside itself.
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return Server{}, err
	}
	p, err := testserver.Prepare("postgres")
	if err != nil {
		return Server{}, err
	}
	s := Server{p, port}
	if out, err := p.Command(initdb, "-D", s.data(), "-U", user, "-A", "trust", "--no-sync", "-E",
		"UTF8").CombinedOutput(); err != nil {
		return Server{}, errors.Join(fmt.Errorf("initdb: %w: %s", err, out), p.Remove())
	}
	s.prepare(filepath.Join(filepath.Dir(initdb), "postgres"))
	if err := change(s); err != nil {
		return Server{}, errors.Join(err, p.Remove())
	}
	if err := p.Run(); err != nil {
		return Server{}, errors.Join(err, p.Remove())
	}
	return s, nil
}

// prepare says how the server is run on its data.
func (s Server) prepare(path string) {
	s.Path = path
	s.Args = []string{"-D", s.data(), "-c", "listen_addresses=", "-c",
		"unix_socket_directories=" + s.Dir, "-p", strconv.Itoa(s.port), "-c", "fsync=off"}
	s.Fatal = syscall.SIGQUIT // after a SIGKILL its children would live on for a while
	s.Ready = func() error {
		return answers(filepath.Join(s.Dir, ".s.PGSQL."+strconv.Itoa(s.port)))
	}
}

func (s Server) data() string { return filepath.Join(s.Dir, "data") }

// DSN returns how clients reach it: keywords and values, as libpq reads them.
func (s Server) DSN() string {
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", s.Dir, s.port, user,
		database)
}

// answers logs in: a server that starts or recovers listens too, but refuses.
func answers(socket string) error {
	conn, err := net.DialTimeout("unix", socket, testserver.Patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	const protocol = 3 << 16
	hello := binary.BigEndian.AppendUint32(nil, protocol)
	hello = append(hello, "user\x00"+user+"\x00database\x00"+database+"\x00\x00"...)
	conn.SetDeadline(time.Now().Add(testserver.Patience))
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(4+len(hello))),
		hello...)); err != nil {
		return err
	}
	var kind [1]byte
	if _, err := io.ReadFull(conn, kind[:]); err != nil {
		return err
	}
	if kind[0] != 'R' { // the login is taken; 'E' is an error
		words, _ := io.ReadAll(io.LimitReader(conn, 1<<10))
		return fmt.Errorf("it answers %q: %q", kind[:], words)
	}
	return nil
}
