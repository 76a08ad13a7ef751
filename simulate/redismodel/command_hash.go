package redismodel

import (
	"slices"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

var hashCommands = map[string]command{
	"HSET": {arity: -4, write: true, run: func(s *Server, args []string) protocol.Reply {
		if len(args)%2 != 0 {
			return failure("ERR wrong number of arguments for 'hset' command")
		}
		v, wrong := s.typedOrNew(args[1], hashType)
		if wrong {
			return errWrongType
		}
		added := 0
		for pairs := args[2:]; len(pairs) > 0; pairs = pairs[2:] {
			if i := v.findField(pairs[0]); i >= 0 {
				v.hash[i].text = pairs[1]
			} else {
				v.hash = append(v.hash, field{pairs[0], pairs[1]})
				added++
			}
		}
		return integer(added)
	}},
	"HGET": {arity: 3, run: func(s *Server, args []string) protocol.Reply {
		v, wrong := s.typed(args[1], hashType)
		if wrong {
			return errWrongType
		}
		if v != nil {
			if i := v.findField(args[2]); i >= 0 {
				return bulk(v.hash[i].text)
			}
		}
		return protocol.Reply{}
	}},
	"HDEL": {arity: -3, write: true, run: func(s *Server, args []string) protocol.Reply {
		v, wrong := s.typed(args[1], hashType)
		switch {
		case wrong:
			return errWrongType
		case v == nil:
			return integer(0)
		}
		gone := 0
		for _, name := range args[2:] {
			if i := v.findField(name); i >= 0 {
				v.hash = slices.Delete(v.hash, i, i+1)
				gone++
			}
		}
		s.tidy(args[1], v)
		return integer(gone)
	}},
	"HLEN": {arity: 2, run: func(s *Server, args []string) protocol.Reply {
		v, wrong := s.typed(args[1], hashType)
		switch {
		case wrong:
			return errWrongType
		case v == nil:
			return integer(0)
		}
		return integer(len(v.hash))
	}},
	"HGETALL": {arity: 2, run: func(s *Server, args []string) protocol.Reply {
		v, wrong := s.typed(args[1], hashType)
		if wrong {
			return errWrongType
		}
		var all []string
		if v != nil {
			for _, f := range v.hash {
				all = append(all, f.name, f.text)
			}
		}
		return bulks(all)
	}},
}
