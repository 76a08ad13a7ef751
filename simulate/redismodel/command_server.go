package redismodel

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// serverCommands are those about the server and its connections.
var serverCommands = map[string]command{
	"PING": {arity: -1, run: func(_ *Server, args []string) protocol.Reply {
		if len(args) > 1 {
			return bulk(args[1])
		}
		return protocol.Reply{Kind: status, Str: "PONG"}
	}},
	"TIME": {arity: 1, run: func(s *Server, _ []string) protocol.Reply {
		return bulks([]string{strconv.FormatInt(s.now.Unix(), 10),
			strconv.Itoa(s.now.Nanosecond() / 1000)})
	}},
	"INFO":   {arity: -1, run: (*Server).info},
	"CONFIG": {arity: -3, run: (*Server).config},
	"CLIENT": {arity: -2, run: (*Server).clientCommand},
	"ROLE": {arity: 1, run: func(s *Server, _ []string) protocol.Reply {
		if s.primary != "" {
			return bulks([]string{"slave"})
		}
		return bulks([]string{"master"})
	}},
	"WAIT": {arity: 3, run: func(s *Server, _ []string) protocol.Reply {
		return integer(s.replicas)
	}},
	"SUBSCRIBE": {arity: -2, run: func(s *Server, args []string) protocol.Reply {
		if s.current == nil {
			return failure("ERR no connection to subscribe")
		}
		s.current.channels = append(s.current.channels, args[1:]...)
		return okay // the confirmation, which comes as a message of its own
	}},
	"PUBLISH":  {arity: 3, run: (*Server).publish},
	"SPUBLISH": {arity: 3, run: (*Server).publish},
}

func (s *Server) publish(args []string) protocol.Reply {
	n := 0
	for _, c := range s.conns {
		if slices.Contains(c.channels, args[1]) {
			c.push(delivery{message: args[2]})
			n++
		}
	}
	return integer(n)
}

// info gives the sections that clients look at.
func (s *Server) info(args []string) protocol.Reply {
	only := "all"
	if len(args) > 1 {
		only = strings.ToLower(args[1])
	}
	var b strings.Builder
	section := func(name string, lines ...string) {
		if only == "all" || only == "everything" || only == "default" ||
			strings.EqualFold(only, name) {
			fmt.Fprintf(&b, "# %s\r\n%s\r\n\r\n", name, strings.Join(lines, "\r\n"))
		}
	}
	// Both are cut to whole seconds, and so is the difference of them: by the server's clock, which
	// may have been set.
	up := s.now.Unix() - s.started.Unix()
	section("Server", "redis_version:"+s.version, "redis_mode:standalone", "run_id:"+s.runID,
		"uptime_in_seconds:"+strconv.FormatInt(up, 10))
	section("Persistence", "loading:0",
		"aof_enabled:"+strconv.Itoa(oneIf(s.settings["appendonly"] == "yes")))
	replication := []string{"role:master", "connected_slaves:" + strconv.Itoa(s.replicas)}
	if s.primary != "" {
		host, port, _ := strings.Cut(s.primary, ":")
		replication = []string{"role:slave", "master_host:" + host, "master_port:" + port}
	}
	section("Replication", append(replication, "master_replid:"+s.history,
		"master_replid2:"+s.former)...)
	section("Cluster", "cluster_enabled:0")
	return bulk(b.String())
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *Server) config(args []string) protocol.Reply {
	switch strings.ToUpper(args[1]) {
	case "GET":
		var found []string
		for _, name := range slices.Sorted(maps.Keys(s.settings)) {
			for _, pattern := range args[2:] {
				if glob(strings.ToLower(pattern), name) {
					found = append(found, name, s.settings[name])
					break
				}
			}
		}
		return bulks(found)
	case "SET":
		if len(args)%2 != 0 {
			return errSyntax
		}
		for pairs := args[2:]; len(pairs) > 0; pairs = pairs[2:] {
			s.settings[strings.ToLower(pairs[0])] = pairs[1]
		}
		return okay
	}
	return failure("ERR unknown subcommand '" + args[1] + "'. Try CONFIG HELP.")
}

// clientCommand is CLIENT ID, CLIENT KILL ID and CLIENT TRACKING ON, which tells of nothing but the
// loss of all data.
func (s *Server) clientCommand(args []string) protocol.Reply {
	switch {
	case strings.EqualFold(args[1], "ID") && len(args) == 2:
		if s.current == nil {
			return integer(0)
		}
		return integer(int(s.current.id))
	case strings.EqualFold(args[1], "TRACKING") && s.current != nil:
		s.current.tracking = len(args) > 2 && strings.EqualFold(args[2], "ON")
		return okay
	case strings.EqualFold(args[1], "KILL") && len(args) == 4 && strings.EqualFold(args[2], "ID"):
		for _, c := range s.conns {
			if strconv.FormatInt(c.id, 10) == args[3] {
				c.end(errReset)
				s.drop(c)
				return integer(1)
			}
		}
		return integer(0)
	}
	return failure("ERR unknown subcommand or wrong number of arguments for '" + args[1] +
		"'. Try CLIENT HELP.")
}
