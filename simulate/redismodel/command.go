package redismodel

import (
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// status is the kind of a reply like OK. For a client it is a String, for a script a table.
const status protocol.Kind = 100

var okay = protocol.Reply{Kind: status, Str: "OK"}

func integer(n int) protocol.Reply {
	return protocol.Reply{Kind: protocol.Integer,
		Int: int64(n)}
}
func bulk(s string) protocol.Reply { return protocol.Reply{Kind: protocol.String, Str: s} }
func failure(text string) protocol.Reply {
	return protocol.Reply{Kind: protocol.Failure,
		Str: text}
}

func bulks(texts []string) protocol.Reply {
	list := make([]protocol.Reply, len(texts))
	for i, text := range texts {
		list[i] = bulk(text)
	}
	return protocol.Reply{Kind: protocol.List, List: list}
}

// The words of Redis.
var (
	errWrongType  = failure("WRONGTYPE Operation against a key holding the wrong kind of value")
	errSyntax     = failure("ERR syntax error")
	errNotInteger = failure("ERR value is not an integer or out of range")
	errNotFloat   = failure("ERR value is not a valid float")
	errReadOnly   = failure("READONLY You can't write against a read only replica.")
)

// command is how a command is carried out. Its arguments are as many as arity says, the name
// included; at least that many if it is negative.
type command struct {
	arity int
	write bool
	run   func(s *Server, args []string) protocol.Reply
}

var commands map[string]command

func init() {
	commands = make(map[string]command)
	for _, group := range []map[string]command{
		keyCommands, stringCommands, hashCommands, zsetCommands, serverCommands, scriptCommands,
	} {
		for name, c := range group {
			commands[name] = c
		}
	}
}

// perform carries out a command that somebody sent: c, or a client that has no connection. Called
// with mu held.
func (s *Server) perform(c *conn, args []string) protocol.Reply {
	s.now = s.wall.now()
	s.current = c
	defer func() { s.current = nil }()
	reply, queued := protocol.Reply{}, false
	if c != nil {
		reply, queued = c.transact(args)
	}
	if !queued {
		reply = s.exec(args)
	}
	if reply.Kind == status {
		reply.Kind = protocol.String
	}
	return reply
}

// exec carries out one command, of a script too.
func (s *Server) exec(args []string) protocol.Reply {
	name := args[0]
	c, ok := commands[name]
	if !ok {
		name = strings.ToUpper(name)
		if c, ok = commands[name]; !ok {
			return unknown(args)
		}
	}
	if c.arity > 0 && len(args) != c.arity || len(args) < -c.arity {
		return failure("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
	}
	if len(s.forbidden) > 0 && s.forbidden[name] {
		return failure("NOPERM this user has no permissions to run the '" + strings.ToLower(name) +
			"' command")
	}
	if c.write && s.primary != "" {
		return errReadOnly
	}
	return c.run(s, args)
}

func unknown(args []string) protocol.Reply {
	text := "ERR unknown command '" + args[0] + "', with args beginning with: "
	for _, arg := range args[1:] {
		text += "'" + arg + "' "
	}
	return failure(text)
}

// typed returns the value of a key if it has the type, or no value and whether there is one of
// another type.
func (s *Server) typed(key, kind string) (v *value, wrong bool) {
	v = s.get(key)
	if v != nil && v.kind != kind {
		return nil, true
	}
	return v, false
}

// typedOrNew makes the value if there is none.
func (s *Server) typedOrNew(key, kind string) (v *value, wrong bool) {
	if v, wrong = s.typed(key, kind); v == nil && !wrong {
		v = &value{kind: kind}
		s.data[key] = v
	}
	return v, wrong
}

// tidy removes a key whose value has become empty.
func (s *Server) tidy(key string, v *value) {
	if v.empty() {
		delete(s.data, key)
	}
}

func parseInt(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && text[0] != '+'
}

func parseScore(text string) (float64, bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsNaN(n)
}

// formatScore writes a number as replies and scripts have it.
func formatScore(n float64) string {
	if n == math.Trunc(n) && math.Abs(n) < 1e17 {
		return strconv.FormatInt(int64(n), 10)
	}
	switch {
	case math.IsInf(n, 1):
		return "inf"
	case math.IsInf(n, -1):
		return "-inf"
	}
	return strconv.FormatFloat(n, 'g', 17, 64)
}

// transact answers MULTI, EXEC and DISCARD, and what is sent between them.
func (c *conn) transact(args []string) (reply protocol.Reply, queued bool) {
	name := strings.ToUpper(args[0])
	switch {
	case name == "MULTI" && !c.multi:
		c.multi, c.queued = true, nil
		return okay, true
	case name == "MULTI":
		return failure("ERR MULTI calls can not be nested"), true
	case name == "EXEC" && !c.multi:
		return failure("ERR EXEC without MULTI"), true
	case name == "DISCARD" && !c.multi:
		return failure("ERR DISCARD without MULTI"), true
	case name == "DISCARD":
		c.multi, c.queued = false, nil
		return okay, true
	case name == "EXEC":
		list := make([]protocol.Reply, len(c.queued))
		for i, command := range c.queued {
			list[i] = c.server.exec(command)
			if list[i].Kind == status {
				list[i].Kind = protocol.String
			}
		}
		c.multi, c.queued = false, nil
		return protocol.Reply{Kind: protocol.List, List: list}, true
	case c.multi:
		c.queued = append(c.queued, append(protocol.Command(nil), args...))
		return protocol.Reply{Kind: status, Str: "QUEUED"}, true
	}
	return protocol.Reply{}, false
}
