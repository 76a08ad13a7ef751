//go:build unix

// Package prometheustest starts real Prometheus servers for tests: see package testserver.
package prometheustest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Debian is the package that has both programs.
const Debian = "prometheus"

// Server is a Prometheus. Kill is a crash.
type Server struct {
	*testserver.Process
	URL string // of its API
}

// StartIn starts a Prometheus at the address, host:port, with new data and the configuration, in
// the directory. Kill ends it.
func StartIn(dir, address, config string) (Server, error) {
	path, err := testserver.Find("prometheus", Debian)
	if err != nil {
		return Server{}, err
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return Server{}, err
	}
	s := Server{&testserver.Process{Path: path, Dir: dir,
		Args: []string{"--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"),
			"--web.listen-address", address, "--log.level", "warn"},
		Ready: func() error { return answers(address) },
	}, "http://" + address}
	if err := s.Run(); err != nil {
		s.Kill()
		return Server{}, err
	}
	return s, nil
}

// Promtool returns the path of the program that checks and tries rules.
func Promtool() (string, error) { return testserver.Find("promtool", Debian) }

// answers asks whether the server is ready, because it listens before it has read its data.
func answers(address string) (err error) {
	conn, err := net.DialTimeout("tcp", address, testserver.Patience)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(testserver.Patience)); err != nil {
		return err
	}
	_, err = io.WriteString(conn, "GET /-/ready HTTP/1.0\r\nHost: "+address+"\r\n\r\n")
	if err != nil {
		return err
	}
	reply, err := io.ReadAll(io.LimitReader(conn, 1<<10))
	if err != nil {
		return err
	}
	if status, _, _ := strings.Cut(string(reply), "\n"); !strings.Contains(status, " 200 ") {
		return fmt.Errorf("it answers %q", status)
	}
	return nil
}
