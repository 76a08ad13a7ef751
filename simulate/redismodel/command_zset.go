package redismodel

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

var zsetCommands = map[string]command{
	"ZADD":          {arity: -4, write: true, run: (*Server).zadd},
	"ZREM":          {arity: -3, write: true, run: (*Server).zrem},
	"ZRANGEBYSCORE": {arity: -4, run: (*Server).zrangeByScore},
	"ZSCORE": {arity: 3, run: func(s *Server, args []string) protocol.Reply {
		v, wrong := s.typed(args[1], zsetType)
		if wrong {
			return errWrongType
		}
		if v != nil {
			if i := v.find(args[2]); i >= 0 {
				return bulk(formatScore(v.zset[i].score))
			}
		}
		return protocol.Reply{}
	}},
	"ZCARD": {arity: 2, run: func(s *Server, args []string) protocol.Reply {
		v, wrong := s.typed(args[1], zsetType)
		switch {
		case wrong:
			return errWrongType
		case v == nil:
			return integer(0)
		}
		return integer(len(v.zset))
	}},
	"ZCOUNT": {arity: 4, run: func(s *Server, args []string) protocol.Reply {
		r, ok := parseRange(args[2], args[3])
		if !ok {
			return failure("ERR min or max is not a float")
		}
		v, wrong := s.typed(args[1], zsetType)
		switch {
		case wrong:
			return errWrongType
		case v == nil:
			return integer(0)
		}
		return integer(len(v.within(r)))
	}},
	"ZRANK": {arity: 3, run: func(s *Server, args []string) protocol.Reply {
		return s.zrank(args, func(i, _ int) int { return i })
	}},
	"ZREVRANK": {arity: 3, run: func(s *Server, args []string) protocol.Reply {
		return s.zrank(args, func(i, n int) int { return n - 1 - i })
	}},
	"ZRANGE": {arity: -4, run: func(s *Server, args []string) protocol.Reply {
		from, ok1 := parseInt(args[2])
		to, ok2 := parseInt(args[3])
		scores := len(args) == 5 && strings.EqualFold(args[4], "WITHSCORES")
		switch {
		case !ok1 || !ok2:
			return errNotInteger
		case len(args) > 4 && !scores:
			return errSyntax
		}
		v, wrong := s.typed(args[1], zsetType)
		switch {
		case wrong:
			return errWrongType
		case v == nil:
			return bulks(nil)
		}
		i, j := span(from, to, len(v.zset))
		return listMembers(v.zset[i:j], scores)
	}},
}

func listMembers(members []member, scores bool) protocol.Reply {
	texts := make([]string, 0, 2*len(members))
	for _, m := range members {
		texts = append(texts, m.name)
		if scores {
			texts = append(texts, formatScore(m.score))
		}
	}
	return bulks(texts)
}

// zaddOptions are the options of ZADD.
type zaddOptions struct{ nx, xx, gt, lt, ch bool }

// parseZadd takes the options off the arguments. It fails with the server's error.
func parseZadd(args []string) (o zaddOptions, pairs []string, failed *protocol.Reply) {
	known := map[string]*bool{"NX": &o.nx, "XX": &o.xx, "GT": &o.gt, "LT": &o.lt, "CH": &o.ch}
	for pairs = args; len(pairs) > 0; pairs = pairs[1:] {
		option := known[strings.ToUpper(pairs[0])]
		if option == nil {
			break
		}
		*option = true
	}
	var reply protocol.Reply
	switch {
	case len(pairs) == 0 || len(pairs)%2 != 0:
		reply = errSyntax
	case o.nx && o.xx:
		reply = failure("ERR XX and NX options at the same time are not compatible")
	case o.gt && (o.nx || o.lt) || o.lt && o.nx:
		reply = failure("ERR GT, LT, and/or NX options at the same time are not compatible")
	default:
		return o, pairs, nil
	}
	return o, nil, &reply
}

// keeps reports whether a member that is there keeps its score.
func (o *zaddOptions) keeps(old, score float64) bool {
	return o.nx || score == old || o.gt && score < old || o.lt && score > old
}

// zadd is ZADD with NX, XX, GT, LT and CH.
func (s *Server) zadd(args []string) protocol.Reply {
	o, pairs, failed := parseZadd(args[2:])
	if failed != nil {
		return *failed
	}
	scores := make([]float64, 0, 4)
	for i := 0; i < len(pairs); i += 2 {
		score, ok := parseScore(pairs[i])
		if !ok {
			return errNotFloat
		}
		scores = append(scores, score)
	}
	v, wrong := s.typedOrNew(args[1], zsetType)
	if wrong {
		return errWrongType
	}
	defer s.tidy(args[1], v)
	added, changed := 0, 0
	for n, score := range scores {
		name := pairs[2*n+1]
		i := v.find(name)
		switch {
		case i < 0 && !o.xx:
			v.insert(member{score, name})
			added++
		case i < 0 || o.keeps(v.zset[i].score, score):
		default:
			v.zset = slices.Delete(v.zset, i, i+1)
			v.insert(member{score, name})
			changed++
		}
	}
	if o.ch {
		added += changed
	}
	return integer(added)
}

func (s *Server) zrem(args []string) protocol.Reply {
	v, wrong := s.typed(args[1], zsetType)
	switch {
	case wrong:
		return errWrongType
	case v == nil:
		return integer(0)
	}
	gone := 0
	for _, name := range args[2:] {
		if i := v.find(name); i >= 0 {
			v.zset = slices.Delete(v.zset, i, i+1)
			gone++
		}
	}
	s.tidy(args[1], v)
	return integer(gone)
}

func (s *Server) zrank(args []string, rank func(index, size int) int) protocol.Reply {
	v, wrong := s.typed(args[1], zsetType)
	if wrong {
		return errWrongType
	}
	if v != nil {
		if i := v.find(args[2]); i >= 0 {
			return integer(rank(i, len(v.zset)))
		}
	}
	return protocol.Reply{}
}

// zrangeByScore is ZRANGEBYSCORE with WITHSCORES and LIMIT.
func (s *Server) zrangeByScore(args []string) protocol.Reply {
	scores, offset, limit := false, int64(0), int64(-1)
	for rest := args[4:]; len(rest) > 0; {
		switch strings.ToUpper(rest[0]) {
		case "WITHSCORES":
			scores = true
			rest = rest[1:]
		case "LIMIT":
			if len(rest) < 3 {
				return errSyntax
			}
			var ok1, ok2 bool
			offset, ok1 = parseInt(rest[1])
			limit, ok2 = parseInt(rest[2])
			if !ok1 || !ok2 {
				return errNotInteger
			}
			rest = rest[3:]
		default:
			return errSyntax
		}
	}
	r, ok := parseRange(args[2], args[3])
	if !ok {
		return failure("ERR min or max is not a float")
	}
	v, wrong := s.typed(args[1], zsetType)
	switch {
	case wrong:
		return errWrongType
	case v == nil || offset < 0:
		return bulks(nil)
	}
	found := v.within(r)
	found = found[min(offset, int64(len(found))):]
	if limit >= 0 {
		found = found[:min(limit, int64(len(found)))]
	}
	return listMembers(found, scores)
}

// scoreRange is a range of scores, as ZCOUNT takes it.
type scoreRange struct {
	min, max         float64
	minOpen, maxOpen bool
}

func parseRange(from, to string) (r scoreRange, ok bool) {
	from, r.minOpen = strings.CutPrefix(from, "(")
	to, r.maxOpen = strings.CutPrefix(to, "(")
	var ok1, ok2 bool
	r.min, ok1 = parseScore(from)
	r.max, ok2 = parseScore(to)
	return r, ok1 && ok2
}

func (r scoreRange) below(score float64) bool {
	return score < r.min || r.minOpen && score == r.min
}
func (r scoreRange) above(score float64) bool {
	return score > r.max || r.maxOpen && score == r.max
}

// within returns the members in a range, which are part of the value.
func (v *value) within(r scoreRange) []member {
	i := 0
	for i < len(v.zset) && r.below(v.zset[i].score) {
		i++
	}
	j := i
	for j < len(v.zset) && !r.above(v.zset[j].score) {
		j++
	}
	return v.zset[i:j]
}
