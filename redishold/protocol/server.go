package protocol

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Server is what a connection found out about its server when it was made.
type Server struct {
	Name    string // address, as an operator would name it
	RunID   string // changes when the server restarts
	Version string // of Redis, or that of Redis that another server says to be compatible with

	// Booted is not before the moment when the server started, on this process's clock: a quarantine reckoned
	// from it is too long rather than too short.
	Booted time.Time

	// Durable says that the server can not have forgotten anything: every write was on its disk before it was
	// answered.
	Durable bool

	// Failover says that another server takes this one's place when it fails, so that being read-only passes.
	Failover bool

	Cluster bool   // runs in cluster mode
	Replica bool   // takes no writes
	Primary string // of a replica: address of its primary
}

// ParseInfo reads the reply to INFO, which came in at the time answered, from the server with that name.
func ParseInfo(name, info string, answered time.Time) (*Server, error) {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[key] = value
		}
	}
	s := &Server{
		Name:    name,
		RunID:   fields["run_id"],
		Version: fields["redis_version"],
		Cluster: fields["cluster_enabled"] == "1" || fields["redis_mode"] == "cluster",
		Replica: fields["role"] == "slave",
		Primary: fields["master_host"] + ":" + fields["master_port"],
	}
	if s.RunID == "" || s.Version == "" {
		return nil, fmt.Errorf("INFO has no run_id or no redis_version: not a Redis server")
	}
	if fields["redis_mode"] == "sentinel" {
		return nil, fmt.Errorf("a Sentinel, not a data server: use redis+sentinel://")
	}
	up, err := strconv.ParseInt(fields["uptime_in_seconds"], 10, 32)
	if err != nil {
		return nil, fmt.Errorf("INFO has uptime_in_seconds %q: %w", fields["uptime_in_seconds"], err)
	}
	// The difference of two times that the server has both cut to whole seconds, so it has been up for a second less at
	// the worst; counted from its answer, which left before it came in. The server counts by its wall clock: below
	// zero if that was set back by more than the server has been up (K5). Then it counts as just started.
	s.Booted = answered.Add(-time.Duration(max(0, up-1)) * time.Second)
	return s, nil
}

// AtLeast reports whether the server's version is major.minor or later.
func (s *Server) AtLeast(major, minor int) bool {
	have := strings.SplitN(s.Version, ".", 3)
	if len(have) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(have[0])
	b, err2 := strconv.Atoi(have[1])
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}
