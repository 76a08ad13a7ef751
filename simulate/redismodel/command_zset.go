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

// zadd is ZADD with NX, XX, GT, LT and CH.
func (s *Server) zadd(args []string) protocol.Reply {
	var nx, xx, gt, lt, ch bool
	pairs := args[2:]
options:
	for ; len(pairs) > 0; pairs = pairs[1:] {
		switch strings.ToUpper(pairs[0]) {
		case "NX":
			nx = true
		case "XX":
			xx = true
		case "GT":
			gt = true
		case "LT":
			lt = true
		case "CH":
			ch = true
		default:
			break options
		}
	}
	switch {
	case len(pairs) == 0 || len(pairs)%2 != 0:
		return errSyntax
	case nx && xx:
		return failure("ERR XX and NX options at the same time are not compatible")
	case gt && (nx || lt) || lt && nx:
		return failure("ERR GT, LT, and/or NX options at the same time are not compatible")
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
		case i < 0 && !xx:
			v.insert(member{score, name})
			added++
		case i < 0 || nx:
		default:
			old := v.zset[i].score
			if score == old || gt && score < old || lt && score > old {
				continue
			}
			v.zset = slices.Delete(v.zset, i, i+1)
			v.insert(member{score, name})
			changed++
		}
	}
	if ch {
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
