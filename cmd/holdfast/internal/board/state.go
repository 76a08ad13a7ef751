package board

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// state is what a look has found. Nobody changes it once it was published.
type state struct {
	o        *Options
	at       time.Time // when the look was over
	first    time.Time // when the first one was over that has seen all; zero before
	good     time.Time // when the last one was over that has seen all; zero before
	trouble  string    // why this one has not
	more     bool      // there are more locks than the rows
	rows     map[string]*row
	changed  []*row   // since the state before
	gone     []string // since the state before
	ended    []*hold  // since the state before
	past     []*hold  // holds that have ended, the oldest first
	blind    []span   // when nobody has looked, the oldest first
	waits    graph
	health   health
	examined examination
}

// message is a state as the page gets it. Times are milliseconds since 1970 by the clock here.
type message struct {
	Full    bool     `json:"full"` // rows and ended are all there are, else what has changed
	Now     int64    `json:"now"`
	First   int64    `json:"first,omitempty"`
	Good    int64    `json:"good,omitempty"`
	Trouble string   `json:"trouble,omitempty"`
	More    bool     `json:"more,omitempty"`
	Rows    []*row   `json:"rows"`
	Gone    []string `json:"gone"`
	Ended   []*hold  `json:"ended"`
	Blind   []span   `json:"blind"`
	Waits   graph    `json:"waits"`
	health
	examination
	*about // only in a full one
}

// about is what does not change.
type about struct {
	Title   string `json:"title"`
	Begins  string `json:"begins,omitempty"`
	EveryMS int64  `json:"every"`
	Release bool   `json:"release"`
	Host    string `json:"host"`
}

func (s *state) message() message {
	return message{Now: millis(s.at), First: millis(s.first), Good: millis(s.good),
		Trouble: s.trouble, More: s.more,
		Blind: list(s.blind), Waits: s.waits, health: s.health, examination: s.examined}
}

// full encodes all that is known.
func (s *state) full() []byte {
	m := s.message()
	m.Full, m.Gone, m.Ended = true, []string{}, list(s.past)
	m.Rows = list(slices.Collect(maps.Values(s.rows)))
	m.about = &about{Title: s.o.Title, EveryMS: s.o.Every.Milliseconds(),
		Release: s.o.Release, Host: look.Shown(look.Host())}
	if s.o.Begins != "" {
		m.Begins = look.Shown(s.o.Begins)
	}
	return look.JSONLine(m)
}

// delta encodes what has changed.
func (s *state) delta() []byte {
	m := s.message()
	m.Rows, m.Gone, m.Ended = list(s.changed), list(s.gone), list(s.ended)
	return look.JSONLine(m)
}

// list is never null in JSON.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

// millis returns a time as the page counts, and 0 for the zero time.
func millis(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}
