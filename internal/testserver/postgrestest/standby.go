//go:build unix

package postgrestest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// StartStandby starts a server that follows s, asynchronously, on a socket in its own directory.
// Remove ends it. It serves readers only, until pg_promote() makes it take over.
func StartStandby(s Server) (Server, error) {
	p, err := testserver.Prepare("postgres")
	if err != nil {
		return Server{}, err
	}
	standby := Server{p, s.port}
	backup := filepath.Join(filepath.Dir(s.Path), "pg_basebackup")
	if out, err := p.Command(backup, "-D", standby.data(), "-h", s.Dir, "-p", strconv.Itoa(s.port),
		"-U", user, "-X", "stream", "-R", "-c", "fast", "--no-sync").CombinedOutput(); err != nil {
		return Server{}, errors.Join(fmt.Errorf("pg_basebackup: %w: %s", err, out), p.Remove())
	}
	standby.prepare(s.Path)
	if err := p.Run(); err != nil {
		return Server{}, errors.Join(err, p.Remove())
	}
	return standby, nil
}
