package redismodel

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

var stringCommands = map[string]command{
	"GET": {arity: 2, run: func(s *Server, args []string) protocol.Reply {
		v, wrong := s.typed(args[1], stringType)
		switch {
		case wrong:
			return errWrongType
		case v == nil:
			return protocol.Reply{}
		}
		return bulk(v.text)
	}},
	"SET": {arity: -3, write: true, run: (*Server).set},
	"SETNX": {arity: 3, write: true, run: func(s *Server, args []string) protocol.Reply {
		if s.get(args[1]) != nil {
			return integer(0)
		}
		s.data[args[1]] = &value{kind: stringType, text: args[2]}
		return integer(1)
	}},
	"STRLEN": {arity: 2, run: func(s *Server, args []string) protocol.Reply {
		v, wrong := s.typed(args[1], stringType)
		switch {
		case wrong:
			return errWrongType
		case v == nil:
			return integer(0)
		}
		return integer(len(v.text))
	}},
	"GETRANGE": {arity: 4, run: func(s *Server, args []string) protocol.Reply {
		from, ok1 := parseInt(args[2])
		to, ok2 := parseInt(args[3])
		if !ok1 || !ok2 {
			return errNotInteger
		}
		v, wrong := s.typed(args[1], stringType)
		switch {
		case wrong:
			return errWrongType
		case v == nil:
			return bulk("")
		}
		n := int64(len(v.text))
		switch {
		case from < 0 && to < 0 && from > to:
			return bulk("")
		case to < -n:
			to = -n // unlike in ZRANGE, that is the first
		}
		i, j := span(from, to, len(v.text))
		return bulk(v.text[i:j])
	}},
	"INCR": {arity: 2, write: true, run: func(s *Server, args []string) protocol.Reply {
		v, wrong := s.typed(args[1], stringType)
		if wrong {
			return errWrongType
		}
		if v == nil {
			v = &value{kind: stringType, text: "0"}
		}
		n, ok := parseInt(v.text)
		if !ok {
			return errNotInteger
		}
		v.text = strconv.FormatInt(n+1, 10)
		s.data[args[1]] = v
		return integer(int(n + 1))
	}},
}

// span turns a range with both ends included, counted from the end if negative, into a slice's.
func span(from, to int64, n int) (i, j int) {
	size := int64(n)
	if from < 0 {
		from = max(0, size+from)
	}
	if to < 0 {
		to = size + to
	}
	to = min(to, size-1)
	if from > to {
		return 0, 0
	}
	return int(from), int(to + 1)
}

// setOptions are the options of SET. expires is in milliseconds since 1970, 0 if there is none.
type setOptions struct {
	nx, xx, keep, get bool
	expires           int64
}

// parseSet reads the options of SET. It fails with the server's error.
func (s *Server) parseSet(args []string) (o setOptions, failed *protocol.Reply) {
	known := map[string]*bool{"NX": &o.nx, "XX": &o.xx, "KEEPTTL": &o.keep, "GET": &o.get}
	for i := 0; i < len(args); i++ {
		option := strings.ToUpper(args[i])
		if flag := known[option]; flag != nil {
			*flag = true
			continue
		}
		i++
		timed := option == "EX" || option == "PX" || option == "PXAT"
		if !timed || i == len(args) || o.expires != 0 {
			return o, &errSyntax
		}
		if o.expires, failed = s.parseExpiry(option, args[i]); failed != nil {
			return o, failed
		}
	}
	if o.nx && o.xx || o.keep && o.expires != 0 {
		return o, &errSyntax
	}
	return o, nil
}

// parseExpiry reads the number of EX, PX or PXAT.
func (s *Server) parseExpiry(option, number string) (int64, *protocol.Reply) {
	n, ok := parseInt(number)
	switch {
	case !ok:
		return 0, &errNotInteger
	case n <= 0:
		reply := failure("ERR invalid expire time in 'set' command")
		return 0, &reply
	case option == "EX":
		n = s.now.UnixMilli() + n*1000
	case option == "PX":
		n += s.now.UnixMilli()
	}
	return n, nil
}

// set is SET with NX, XX, GET, KEEPTTL, EX, PX and PXAT.
func (s *Server) set(args []string) protocol.Reply {
	o, failed := s.parseSet(args[3:])
	if failed != nil {
		return *failed
	}
	old := s.get(args[1])
	answer := okay
	if o.get {
		switch {
		case old == nil:
			answer = protocol.Reply{}
		case old.kind != stringType:
			return errWrongType
		default:
			answer = bulk(old.text)
		}
	}
	if o.nx && old != nil || o.xx && old == nil {
		if o.get {
			return answer
		}
		return protocol.Reply{}
	}
	if o.keep && old != nil {
		o.expires = old.expires
	}
	s.data[args[1]] = &value{kind: stringType, text: args[2], expires: o.expires}
	return answer
}
