//go:build unix

// Package versitytest starts real Versity S3 gateways for tests: see package testserver. Objects
// are files in the gateway's own directory.
package versitytest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// What a client needs to know of every gateway.
const (
	AccessKey = "holdfast"
	Secret    = "holdfast-secret"
	Region    = "us-east-1"
)

// Server is a gateway. Kill is a crash, which its files survive.
type Server struct {
	*testserver.Process
	URL string // of its S3 API
}

// Start starts a gateway on new data, which ends with the test.
func Start(t testing.TB) Server {
	t.Helper()
	s, err := StartIn(t.TempDir(), fmt.Sprintf("127.0.0.1:%d", testserver.FreePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	s.EndWith(t, func() string { return "versitygw" })
	return s
}

// StartIn starts a gateway at the address, host:port, on new data in the directory, which it makes
// if need be. Kill ends it.
func StartIn(dir, address string) (Server, error) {
	path, err := find()
	if err != nil {
		return Server{}, err
	}
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return Server{}, err
	}
	s := Server{&testserver.Process{Path: path, Dir: dir,
		Args: []string{"--port", address, "--access", AccessKey, "--secret", Secret,
			"--region", Region, "--health", "/health", "--quiet", "posix", data},
	}, "http://" + address}
	s.Ready = s.answers
	if err := s.Process.Run(); err != nil {
		s.Kill()
		return Server{}, err
	}
	return s, nil
}

// Run starts the gateway again, on the objects that it had.
func (s Server) Run(t testing.TB) {
	t.Helper()
	if err := s.Process.Run(); err != nil {
		t.Fatal(err)
	}
}

// find returns the path of the program: the first in the PATH, or else the one that
// scripts/install.sh has built.
func find() (string, error) {
	path, err := exec.LookPath("versitygw")
	if err != nil {
		// The command knows what is set by go env -w, too.
		var gopath []byte
		if gopath, err = exec.Command("go", "env", "GOPATH").Output(); err == nil {
			first, _, _ := strings.Cut(strings.TrimSpace(string(gopath)),
				string(filepath.ListSeparator))
			path, err = exec.LookPath(filepath.Join(first, "bin", "versitygw"))
		}
	}
	if err != nil {
		return "", fmt.Errorf(
			"versitygw is not installed: run scripts/install.sh test, which builds it: %w", err)
	}
	return path, nil
}

// answers returns nil as soon as the gateway serves.
func (s Server) answers() error {
	client := http.Client{Timeout: testserver.Patience}
	defer client.CloseIdleConnections()
	response, err := client.Get(s.URL + "/health")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it is not healthy: %s", response.Status)
	}
	return nil
}
