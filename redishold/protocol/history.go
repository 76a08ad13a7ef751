package protocol

import (
	"strings"
	"time"
)

// A server can lose its data without a restart: it becomes a replica, which replaces all its data,
// and then a primary again; or somebody deletes everything. history is what shows this.
type history struct {
	// replid is the server's name for the history of its data. If it changes in the same run, the
	// server was a replica, or it got its first replica, which looks the same.
	replid string

	// promoted says that the data once were a replica's, in this run or in an earlier one that left
	// a snapshot. A server without replicas forgets that after an hour, its repl-backlog-ttl.
	promoted bool
}

func readHistory(fields map[string]string) history {
	second := fields["master_replid2"]
	return history{replid: fields["master_replid"], promoted: strings.Trim(second, "0") != ""}
}

// Follow takes over what a former look found at the server, or at the server in its place before.
// former is nil if there was no look. now is the time of this look, or later.
func (s *Server) Follow(former *Server, now time.Time) {
	if former == nil {
		if s.history.promoted && !s.Failover {
			s.Forgot = now
		}
		return
	}
	s.Forgot = former.Forgot
	sameRun := former.RunID == s.RunID
	switch {
	case sameRun && former.history.replid != s.history.replid, !sameRun && s.history.promoted &&
		!s.Failover:
		s.Forgot = now
	case sameRun && former.Booted.After(s.Booted):
		s.Booted = former.Booted // the latest start that was found counts: the uptime may be wrong
	}
}

// Emptied returns what is known about the server after it lost its data, at the time at or before.
func (s *Server) Emptied(at time.Time) *Server {
	emptied := *s
	emptied.Forgot = at
	return &emptied
}

// suspect returns the time since when the server surely remembers.
func (s *Server) suspect() time.Time {
	if s.Durable || s.Forgot.After(s.Booted) {
		return s.Forgot
	}
	return s.Booted
}
