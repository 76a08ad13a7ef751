//go:build unix

package redistest

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Sentinels are a primary, a replica and three Sentinels that watch over them.
type Sentinels struct {
	Primary   *Server   // as it was at the start
	Replica   *Server   // of Primary
	Sentinels []*Server // three
}

// PrimaryName is what the Sentinels call the primary.
const PrimaryName = "locks"

// StartSentinels starts all of them and waits until the Sentinels know each other and both servers.
// The replica does not take over unless it is told to, however busy the machine is. See
// [Sentinels.TakeOver].
func StartSentinels(t testing.TB, options ...Option) *Sentinels {
	t.Helper()
	options = append([]Option{WithArgs("--repl-diskless-sync-delay", "0")}, options...)
	s := &Sentinels{Primary: Start(t, options...)}
	host, port, _ := net.SplitHostPort(s.Primary.Addr)
	s.Replica = Start(t, append(options, WithArgs("--replicaof", host, port))...)
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, s.Primary))
	}
	for _, sentinel := range s.Sentinels {
		testserver.Eventually(t, "the Sentinels know each other", func() error {
			fields := sentinel.Do(t, "SENTINEL", "MASTER", PrimaryName).([]any)
			values := make(map[string]string)
			for i := 0; i+1 < len(fields); i += 2 {
				values[fields[i].(string)] = fields[i+1].(string)
			}
			return testserver.Not(values["num-other-sentinels"] == "2" &&
				values["num-slaves"] == "1" &&
				values["flags"] == "master", "%v", values)
		})
	}
	return s
}

func startSentinel(t testing.TB, primary *Server) *Server {
	t.Helper()
	s := newServer(t)
	port := strconv.Itoa(testserver.FreePort(t))
	s.Addr = net.JoinHostPort("127.0.0.1", port)
	host, primaryPort, _ := net.SplitHostPort(primary.Addr)
	config := []string{
		"port " + port,
		"bind 127.0.0.1",
		"dir " + s.Dir,
		"sentinel monitor " + PrimaryName + " " + host + " " + primaryPort + " 2",
		"sentinel down-after-milliseconds " + PrimaryName + " " + nodeTimeout,
		// A takeover that takes longer is given up, and a replica that is already a primary becomes
		// a replica again.
		"sentinel failover-timeout " + PrimaryName + " " + nodeTimeout,
		"sentinel parallel-syncs " + PrimaryName + " 1",
	}
	if primary.secret != "" {
		config = append(config, "sentinel auth-pass "+PrimaryName+" "+primary.secret)
	}
	// The settings are in a file, not in arguments, because a Sentinel keeps what it learns in its
	// file.
	file := filepath.Join(s.Dir, "sentinel.conf")
	if err := os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Args = []string{file, "--sentinel"}
	s.Run(t)
	return s
}

// URL returns redis+sentinel:// with all Sentinels.
func (s *Sentinels) URL() string {
	var hosts []string
	for _, sentinel := range s.Sentinels {
		hosts = append(hosts, sentinel.Addr)
	}
	login := ""
	if s.Primary.secret != "" {
		login = ":" + s.Primary.secret + "@"
	}
	return "redis+sentinel://" + login + strings.Join(hosts, ",") + "/" + PrimaryName
}
