package redismodel

import (
	"strings"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// keyCommands are those for keys of any type.
var keyCommands = map[string]command{
	"EXISTS": {arity: -2, run: func(s *Server, args []string) protocol.Reply {
		n := 0
		for _, key := range args[1:] {
			if s.get(key) != nil {
				n++
			}
		}
		return integer(n)
	}},
	"DEL":    {arity: -2, write: true, run: (*Server).del},
	"UNLINK": {arity: -2, write: true, run: (*Server).del},
	"TYPE": {arity: 2, run: func(s *Server, args []string) protocol.Reply {
		if v := s.get(args[1]); v != nil {
			return protocol.Reply{Kind: status, Str: v.kind}
		}
		return protocol.Reply{Kind: status, Str: "none"}
	}},
	"PTTL": {arity: 2, run: func(s *Server, args []string) protocol.Reply {
		return s.ttl(args[1], 1)
	}},
	"TTL": {arity: 2, run: func(s *Server, args []string) protocol.Reply {
		return s.ttl(args[1], 1000)
	}},
	"PEXPIRE": {arity: 3, write: true, run: func(s *Server, args []string) protocol.Reply {
		return s.expire(args[1], args[2], 1)
	}},
	"EXPIRE": {arity: 3, write: true, run: func(s *Server, args []string) protocol.Reply {
		return s.expire(args[1], args[2], 1000)
	}},
	"PERSIST": {arity: 2, write: true, run: func(s *Server, args []string) protocol.Reply {
		v := s.get(args[1])
		if v == nil || v.expires == 0 {
			return integer(0)
		}
		v.expires = 0
		return integer(1)
	}},
	"KEYS": {arity: 2, run: func(s *Server, args []string) protocol.Reply {
		return bulks(s.matching(args[1], ""))
	}},
	"SCAN": {arity: -2, run: (*Server).scan},
	"DBSIZE": {arity: 1, run: func(s *Server, _ []string) protocol.Reply {
		return integer(len(s.liveKeys()))
	}},
	"FLUSHALL": {arity: -1, write: true, run: (*Server).flush},
	"FLUSHDB":  {arity: -1, write: true, run: (*Server).flush},
}

func (s *Server) del(args []string) protocol.Reply {
	n := 0
	for _, key := range args[1:] {
		if s.get(key) != nil {
			delete(s.data, key)
			n++
		}
	}
	return integer(n)
}

func (s *Server) flush([]string) protocol.Reply {
	clear(s.data)
	s.tellEmptied()
	return okay
}

// ttl tells what remains of a key in units of that many ms, or why it has no end.
func (s *Server) ttl(key string, unit int64) protocol.Reply {
	v := s.get(key)
	switch {
	case v == nil:
		return integer(-2)
	case v.expires == 0:
		return integer(-1)
	}
	return integer(int((v.expires - s.now.UnixMilli() + unit/2) / unit))
}

func (s *Server) expire(key, text string, unit int64) protocol.Reply {
	n, ok := parseInt(text)
	if !ok {
		return errNotInteger
	}
	v := s.get(key)
	if v == nil {
		return integer(0)
	}
	if n <= 0 {
		delete(s.data, key)
		return integer(1)
	}
	v.expires = s.now.UnixMilli() + n*unit
	return integer(1)
}

// matching returns the keys that match the pattern and have the type, if one is given.
func (s *Server) matching(pattern, kind string) []string {
	var found []string
	for _, key := range s.liveKeys() {
		if glob(pattern, key) && (kind == "" || s.data[key].kind == kind) {
			found = append(found, key)
		}
	}
	return found
}

// scan gives everything at once: that is allowed, and what a scan that is interrupted promises.
func (s *Server) scan(args []string) protocol.Reply {
	pattern, kind := "*", ""
	if _, ok := parseInt(args[1]); !ok {
		return failure("ERR invalid cursor")
	}
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) == 1 {
			return errSyntax
		}
		switch strings.ToUpper(rest[0]) {
		case "MATCH":
			pattern = rest[1]
		case "TYPE":
			kind = rest[1]
		case "COUNT":
			if n, ok := parseInt(rest[1]); !ok || n < 1 {
				return errNotInteger
			}
		default:
			return errSyntax
		}
	}
	return protocol.Reply{Kind: protocol.List,
		List: []protocol.Reply{bulk("0"), bulks(s.matching(pattern, kind))}}
}

// glob reports whether text matches the pattern: * ? [abc] [^a-c] and \ before what means itself.
func glob(pattern, text string) bool {
	for len(pattern) > 0 {
		switch pattern[0] {
		case '*':
			for i := 0; i <= len(text); i++ {
				if glob(pattern[1:], text[i:]) {
					return true
				}
			}
			return false
		case '?':
			if text == "" {
				return false
			}
		case '[':
			end := strings.IndexByte(pattern[1:], ']') + 1
			if text == "" || end == 0 || !inSet(pattern[1:end], text[0]) {
				return false
			}
			pattern, text = pattern[end+1:], text[1:]
			continue
		case '\\':
			if len(pattern) > 1 {
				pattern = pattern[1:]
			}
			fallthrough
		default:
			if text == "" || text[0] != pattern[0] {
				return false
			}
		}
		pattern, text = pattern[1:], text[1:]
	}
	return text == ""
}

func inSet(set string, c byte) bool {
	not := strings.HasPrefix(set, "^")
	set = strings.TrimPrefix(set, "^")
	for i := 0; i < len(set); i++ {
		if i+2 < len(set) && set[i+1] == '-' {
			if set[i] <= c && c <= set[i+2] {
				return !not
			}
			i += 2
		} else if set[i] == c {
			return !not
		}
	}
	return not
}
