//go:build unix

package zookeepertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// loyalty is how many ticks the servers of an ensemble wait for each other. A leader whose
// followers stand still does not notice for a minute.
const loyalty = 600

// StartEnsemble starts an ensemble of three servers, and returns its leader and the others. They
// are removed when the test ends.
func StartEnsemble(t testing.TB) (leader Server, followers []Server, err error) {
	lines := []string{"initLimit=600", fmt.Sprintf("syncLimit=%d", loyalty)}
	const size = 3
	for id := range size {
		lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", id+1,
			testserver.FreePort(t), testserver.FreePort(t)))
	}
	var servers [size]Server
	for id := range servers {
		s, err := prepare(t, lines...)
		if err != nil {
			return Server{}, nil, err
		}
		t.Cleanup(func() {
			if err := s.Remove(); err != nil {
				t.Error(err)
			}
		})
		name := []byte(strconv.Itoa(id + 1))
		if err := os.WriteFile(filepath.Join(s.Dir, "myid"), name, 0o644); err != nil {
			return Server{}, nil, err
		}
		servers[id] = s
	}
	// None of them answers before two run.
	var running sync.WaitGroup
	var failed [size]error
	for id, s := range servers {
		running.Go(func() { failed[id] = s.Run() })
	}
	running.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		return Server{}, nil, err
	}
	for _, s := range servers {
		part, err := Mode(s.Address)
		switch {
		case err != nil:
			return Server{}, nil, err
		case part == "leader":
			leader = s
		default:
			followers = append(followers, s)
		}
	}
	if leader.Process == nil {
		return Server{}, nil, errors.New("the ensemble has no leader any more")
	}
	return leader, followers, nil
}
