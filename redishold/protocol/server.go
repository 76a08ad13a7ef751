package protocol

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Server is what a connection found out about its server when it was made.
type Server struct {
	Name    string // address, as an operator would name it
	RunID   string // changes when the server restarts
	Version string // of Redis, or the Redis version that another server says it is compatible with
	Release string // what an operator would call its version: "7.0.15", "Valkey 8.1.1"

	// Booted is when the server started, on this process's clock, or later: a quarantine counted
	// from it may be too long, never too short.
	Booted time.Time

	// Durable is the operator's word that the server has forgotten nothing, in this run and in
	// those before: every write was on its disk before it was answered.
	Durable bool

	// Forgot is when the server last lost its data within a run, as a replica does, or a later
	// time. It is zero if the server did not. Durable does not exempt from it.
	Forgot time.Time

	// Failover says that another server takes this one's place when it fails. So a server that was
	// just promoted has not lost its data.
	Failover bool

	// Blind says that the connection is not told when the server loses its data.
	Blind bool

	Cluster bool   // runs in cluster mode
	Replica bool   // takes no writes
	Primary string // of a replica: address of its primary

	history history
}

// ParseInfo reads the reply to INFO, which came at the time answered, from the server with that
// name. It fails if that is no Redis server, or a Sentinel.
func ParseInfo(name, info string, answered time.Time) (*Server, error) {
	fields := infoFields(info)
	// of Valkey 8 or later, of all others
	mode := cmp.Or(fields["server_mode"], fields["redis_mode"])
	s := &Server{
		Name:    name,
		RunID:   fields["run_id"],
		Version: fields["redis_version"],
		Release: fields["redis_version"],
		Cluster: fields["cluster_enabled"] == "1" || mode == "cluster",
		Replica: fields["role"] == "slave",
		Primary: fields["master_host"] + ":" + fields["master_port"],
		history: readHistory(fields),
	}
	if s.RunID == "" || s.Version == "" {
		return nil, fmt.Errorf("INFO has no run_id or no redis_version: not a Redis server")
	}
	if release := fields["valkey_version"]; release != "" {
		s.Release = "Valkey " + release // its redis_version is always the same
	}
	if mode == "sentinel" {
		return nil, fmt.Errorf("a Sentinel, not a data server: use redis+sentinel://")
	}
	up, err := strconv.ParseInt(fields["uptime_in_seconds"], 10, 32)
	if err != nil {
		return nil, fmt.Errorf("INFO has uptime_in_seconds %q: %w",
			fields["uptime_in_seconds"], err)
	}
	// The uptime is the difference of two times that are cut to whole seconds, so it may be a
	// second too long. It is counted back from when the answer came, which is later than when it
	// was sent. The server uses its wall clock: if that was set back, the uptime may be negative,
	// and the server counts as just started.
	s.Booted = answered.Add(-time.Duration(max(0, up-1)) * time.Second)
	return s, nil
}

// blind reports whether nothing tells when the server loses its data: the connection is a
// library's, or may not use tracking.
func (s *Server) blind() bool { return s == nil || s.Blind }

// infoFields reads the reply to INFO.
func infoFields(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[key] = value
		}
	}
	return fields
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
