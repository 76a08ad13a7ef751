package board

import "time"

const (
	// mostPast is how many holds that have ended are remembered.
	mostPast = 1000

	// mostBlind is how many spans are remembered in which nobody has looked.
	mostBlind = 50
)

// hold says who held a key, from when until when, as far as the board has seen. It has ended.
type hold struct {
	Key   string `json:"key"` // of a row
	Name  string `json:"name"`
	By    party  `json:"by"`
	Until int64  `json:"until"`           // when it was over at last
	About bool   `json:"about,omitempty"` // it ended later, while nobody looked
}

// span is a time in which nobody has looked, or the backend has not answered.
type span struct {
	From  int64 `json:"from"`
	Until int64 `json:"until"`
}

// compare notes what has changed between the state before, which may be nil, and this one, both of
// which have seen all.
func (s *state) compare(before *state) {
	if before == nil {
		return
	}
	s.past, s.blind = before.past, before.blind
	if before.good.IsZero() {
		s.changed = values(s.rows)
		return
	}
	s.first = before.first
	seen := s.at
	blind := s.at.Sub(before.good) > s.o.blindAfter()
	if blind {
		seen = before.good
		s.blind = keep(s.blind, []span{{millis(before.good), millis(s.at)}}, mostBlind)
	}
	for id, now := range s.rows {
		was := before.rows[id]
		if was == nil {
			s.changed = append(s.changed, now)
			continue
		}
		if now.follow(was) {
			s.rows[id] = was
			continue
		}
		s.changed = append(s.changed, now)
		s.end(was, now, seen, blind)
	}
	for id, was := range before.rows {
		if s.rows[id] == nil {
			s.gone = append(s.gone, id)
			// If there are more keys than are shown, a key that is missing may only have moved out
			// of sight.
			if !s.more && !before.more {
				s.end(was, &row{}, seen, blind)
			}
		}
	}
	s.past = keep(s.past, s.ended, mostPast)
}

// end notes the holders of a row that it does not have any more.
func (s *state) end(was, now *row, at time.Time, about bool) {
	if !was.all() || !now.all() {
		return // some of them were not looked at
	}
	for _, p := range was.Holders {
		if now.holder(p.ID) == nil {
			s.ended = append(s.ended, &hold{Key: was.ID, Name: was.Name, By: p,
				Until: millis(at), About: about})
		}
	}
}

// blindAfter is how long may lie between two looks that see everything that lasts.
func (o *Options) blindAfter() time.Duration { return 3*o.Every + 5*time.Second }

// keep returns both lists in a new one, without the first if they are too many.
func keep[T any](old, more []T, most int) []T {
	if len(more) == 0 {
		return old
	}
	all := append(append(make([]T, 0, len(old)+len(more)), old...), more...)
	return all[max(0, len(all)-most):]
}

func values(rows map[string]*row) (all []*row) {
	for _, r := range rows {
		all = append(all, r)
	}
	return all
}
