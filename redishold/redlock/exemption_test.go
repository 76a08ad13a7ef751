package redlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

// aged starts n servers that say that they have been up for an hour.
func aged(t *testing.T, n int, options ...redistest.Option) *cluster {
	t.Helper()
	c, clocks := new(cluster), make([]*redistest.Clock, n)
	for i := range clocks {
		clocks[i] = redistest.NewClock(t)
		c.servers = append(c.servers,
			redistest.Start(t, append(options, redistest.WithClock(clocks[i]))...))
	}
	for i, s := range c.servers {
		remember(t, s)
		clocks[i].Step(t, time.Hour)
		testserver.Eventually(t, "the server has read its clock", func() error {
			up := s.Info(t, "uptime_in_seconds")
			return testserver.Not(len(up) == len("3600"), "up for %s s", up)
		})
	}
	return c
}

// remember has the server take note since when it has its data, as it does for its first client.
func remember(t *testing.T, s *redistest.Server) {
	t.Helper()
	b, err := redishold.Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.Guard(longTTL)
	if _, err := b.Acquire(t.Context(), newClaim("first", longTTL)); !errors.As(err,
		new(*driver.QuarantineError)) {
		t.Fatalf("the first claim of a server: %v; want a quarantine", err)
	}
}

// What a server may have forgotten depends on how it kept its data before it restarted. That it
// syncs all its writes from now on says nothing about that (R32). Nor does the operator's word that
// the server is durable bring back what it did not keep.
func TestR32_SettingsOfTheNewRunExemptNobody(t *testing.T) {
	t.Parallel()
	const query = "restart-guard=10m&node-timeout=3s"
	for name, restart := range map[string]func(t *testing.T, s *redistest.Server){
		"log switched on in the file": func(t *testing.T, s *redistest.Server) {
			s.Kill()
			s.Change(redistest.WithAOF("always"))
			s.Run(t)
		},
		"log switched on over a snapshot": func(t *testing.T, s *redistest.Server) {
			s.Kill()
			s.Change(redistest.WithArgs("--dbfilename", "dump.rdb"), redistest.WithAOF("always"))
			s.Run(t)
		},
		"older data from a snapshot": func(t *testing.T, s *redistest.Server) {
			s.Kill()
			s.Run(t)
			if s.Int(t, "EXISTS", "before") != 1 {
				t.Fatal("the snapshot was not loaded")
			}
		},
		"switched on when it runs": func(t *testing.T, s *redistest.Server) {
			s.Kill()
			s.Run(t)
			s.Do(t, "CONFIG", "SET", "appendfsync", "always", "appendonly", "yes")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := aged(t, 5)
			if strings.Contains(name, "snapshot") {
				c.servers[2].Do(t, "SET", "before", "x")
				c.servers[2].Do(t, "SAVE")
			}
			a, b := c.behindProxies(t, query), c.client(t, query)
			a.cut(true, 3, 4)
			_, until := a.timed(newClaim("k", longTTL))
			restart(t, c.servers[2])
			second := newClaim("k", longTTL)
			testserver.Eventually(t, "the restarted server was asked", func() error {
				r, err := b.ask(second)
				if r.State == driver.Held && time.Now().Before(until) {
					t.Fatal("two holders")
				}
				n := b.Status().Nodes[2]
				return errors.Join(err, testserver.Not(n.Quarantine > 0, "%+v", n))
			})
		})
	}
}
