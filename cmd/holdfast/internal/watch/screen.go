package watch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// Screen is what is shown. It knows nothing of the terminal: it takes keys, sizes and news, and
// returns lines. All of its text is printable.
type Screen struct {
	title         string // where the locks are
	prefix        string // of all keys
	width, height int
	hide          func(string) string
	now           func() time.Time

	all      []look.Key // in the order of the backend
	partly   bool       // there are more
	seen     time.Time  // when that was; zero before the first time
	left     bool       // a lock was inspected since then
	asked    time.Time  // when the look at work began; zero if none is
	trouble  error      // of the last look
	rows     []look.Key // those of all that are shown, in order
	selected string     // the full key of the row with the cursor
	cursor   int        // its place, for when the key is gone
	top      int        // the first row on the screen

	order   int // the column by which rows are sorted
	reverse bool
	filter  string
	typing  bool // keys go to the filter

	inside    bool   // a lock is inspected
	opened    string // its key without the prefix
	detail    []string
	described time.Time // when that was; zero before the first time
	scroll    int
}

// NewScreen returns a screen for the locks of the backend that title names, whose keys begin with
// the prefix. hide takes secrets out of an error.
func NewScreen(title, prefix string, hide func(string) string, now func() time.Time) *Screen {
	return &Screen{title: look.Line(title), prefix: prefix, width: 80, height: 24, hide: hide,
		now: now}
}

// Resize says how many columns and lines there are.
func (s *Screen) Resize(width, height int) { s.width, s.height = width, height }

// Show gives the screen what the backend has. partly says that there are more.
func (s *Screen) Show(keys []look.Key, partly bool) {
	s.all, s.partly, s.seen, s.left = keys, partly, s.now(), false
	s.asked, s.trouble = time.Time{}, nil
	s.arrange()
}

// ShowOne gives the screen the lock of that name, if that is still the one that it wants.
func (s *Screen) ShowOne(name string, k look.Key) {
	s.asked, s.trouble = time.Time{}, nil
	if s.inside && name == s.opened {
		s.described = s.now()
		s.detail = strings.Split(strings.TrimSuffix(k.Describe(s.ages, s.hide), "\n"), "\n")
	}
}

// Fail says that the backend did not show anything. What was shown stays.
func (s *Screen) Fail(err error) { s.asked, s.trouble = time.Time{}, err }

// Ask says that a look at the backend begins.
func (s *Screen) Ask() { s.asked = s.now() }

// Wants returns the name of the lock that is inspected, and false if it is all of them.
func (s *Screen) Wants() (name string, one bool) { return s.opened, s.inside }

// ages is how long ago something was.
func (s *Screen) ages(at time.Time) time.Duration { return max(s.now().Sub(at), 0) }

// arrange filters and sorts, and keeps the cursor on its key.
func (s *Screen) arrange() {
	s.rows = s.rows[:0:0]
	for _, k := range s.all {
		if s.matches(k) {
			s.rows = append(s.rows, k)
		}
	}
	by := columns[s.order].compare
	slices.SortStableFunc(s.rows, func(a, b look.Key) int {
		order := by(a, b)
		if s.reverse {
			order = -order
		}
		return order
	})
	at := slices.IndexFunc(s.rows, func(k look.Key) bool { return k.Full == s.selected })
	if at >= 0 {
		s.cursor = at
	}
	s.move(0)
}

// matches reports whether the filter leaves the key: it is a part of what its row shows.
func (s *Screen) matches(k look.Key) bool {
	if s.filter == "" {
		return true
	}
	text := strings.ToLower(strings.Join(k.Row(s.ages), " "))
	return strings.Contains(text, strings.ToLower(s.filter))
}

// move moves the cursor.
func (s *Screen) move(by int) {
	s.cursor = max(0, min(s.cursor+by, len(s.rows)-1))
	if len(s.rows) == 0 {
		s.cursor, s.selected = 0, ""
		return
	}
	s.selected = s.rows[s.cursor].Full
}

// column is a column of the list with its order.
type column struct {
	head    string
	compare func(a, b look.Key) int
}

// columns are those of look.Head.
var columns = [...]column{
	{"NAME", func(a, b look.Key) int { return a.Compare(b.Name) }},
	{"HOLDER", func(a, b look.Key) int { return cmp.Compare(first(a).Label, first(b).Label) }},
	{"HOST", func(a, b look.Key) int { return cmp.Compare(first(a).Host, first(b).Host) }},
	{"PID", func(a, b look.Key) int { return cmp.Compare(first(a).PID, first(b).PID) }},
	{"FOR", func(a, b look.Key) int { return first(a).Since.Compare(first(b).Since) }},
	{"LEASE", func(a, b look.Key) int { return cmp.Compare(last(a).Lease, last(b).Lease) }},
	{"WAITING", func(a, b look.Key) int { return cmp.Compare(len(b.Waiters), len(a.Waiters)) }},
}

func first(k look.Key) look.Party {
	if len(k.Holders) == 0 {
		return look.Party{}
	}
	return k.Holders[0]
}

func last(k look.Key) look.Party {
	if len(k.Holders) == 0 {
		return look.Party{}
	}
	return k.Holders[len(k.Holders)-1]
}

// late is for how long an answer may be missing before what is shown is said to be old.
const late = 2 * time.Second

// state is one line about how good what is shown is.
func (s *Screen) state() string {
	from := s.seen
	if s.inside {
		from = s.described
	}
	old := s.left && !s.inside || !s.asked.IsZero() && s.ages(s.asked) >= late
	switch {
	case s.trouble != nil && from.IsZero():
		return "no answer yet: " + s.words(s.trouble)
	case s.trouble != nil:
		return fmt.Sprintf("as it was %v ago: %s", s.ages(from).Round(time.Second),
			s.words(s.trouble))
	case from.IsZero():
		return "asking"
	case old:
		return fmt.Sprintf("as it was %v ago: asking", s.ages(from).Round(time.Second))
	case s.partly:
		return fmt.Sprintf("%d of the first %d locks, and there are more", len(s.rows), len(s.all))
	case len(s.rows) != len(s.all):
		return fmt.Sprintf("%d of %d locks", len(s.rows), len(s.all))
	case len(s.all) == 1:
		return "1 lock"
	}
	return fmt.Sprintf("%d locks", len(s.all))
}

// words returns what an error says, in one line of printable text.
func (s *Screen) words(err error) string { return look.Line(s.hide(err.Error())) }
