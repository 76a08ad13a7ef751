package watch

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// The looks of a line. They work without colours.
const (
	plain    = ""
	bold     = "\x1b[1m"
	inverse  = "\x1b[7m"
	ordinary = "\x1b[0m"
)

const (
	frame = 4 // lines that are not of the list: title, state, head, and what the keys do
	less  = "..."
)

// body is how many lines the list or the details have.
func (s *Screen) body() int { return max(1, s.height-frame) }

// String returns the lines of the screen, none of which is too long.
func (s *Screen) String() string {
	lines := []string{s.line(bold, "holdfast watch  "+s.title),
		s.line(plain, middle(s.state(), s.width))}
	help := "q quit  enter inspect  s sort  r reverse  / filter"
	switch {
	case s.inside:
		lines = append(lines, s.line(plain, ""))
		lines = append(lines, s.details()...)
		help = "q quit  esc back  up and down scroll"
	default:
		lines = append(lines, s.list()...)
	}
	if s.typing {
		help = "filter: " + s.filter + "_  enter keep  esc clear"
	} else if s.filter != "" && !s.inside {
		help += ": " + s.filter + "  esc clear"
	}
	for len(lines) < s.height-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(lines, s.line(inverse, help)), "\n")
}

// line returns a line in a look, cut to the width.
func (s *Screen) line(looks, text string) string {
	text = ansi.Truncate(text, s.width, less)
	if looks == plain {
		return text
	}
	if pad := s.width - ansi.StringWidth(text); looks == inverse && pad > 0 {
		text += strings.Repeat(" ", pad)
	}
	return looks + text + ordinary
}

// middle leaves out the middle of a text that is too long: the end of an error says what is wrong.
func middle(text string, width int) string {
	over := ansi.StringWidth(text) - width
	if over <= 0 || width < 4*len(less) {
		return text
	}
	begin := width / 2
	return ansi.Truncate(text, begin, less) + ansi.TruncateLeft(text, begin+over, "")
}

// list returns the head and those rows that there is room for.
func (s *Screen) list() (lines []string) {
	s.top = max(s.cursor-s.body()+1, min(s.top, s.cursor))
	s.top = max(0, min(s.top, len(s.rows)-s.body()))
	shown := s.rows[s.top:min(s.top+s.body(), len(s.rows))]
	rows := [][]string{s.head()}
	for _, k := range shown {
		rows = append(rows, k.Row(s.ages))
	}
	text := strings.Split(strings.TrimSuffix(look.Table(s.fit(rows)), "\n"), "\n")
	for i, line := range text {
		looks := plain
		switch i {
		case 0:
			looks = bold
		case s.cursor - s.top + 1:
			looks = inverse
		}
		lines = append(lines, s.line(looks, line))
	}
	return lines
}

// head is the head of the list, with a mark at the column that gives the order.
func (s *Screen) head() (head []string) {
	for i, c := range columns {
		text := c.head
		if i == s.order {
			text += map[bool]string{false: " v", true: " ^"}[s.reverse]
		}
		head = append(head, text)
	}
	return head
}

const (
	leastCell = 6 // to which holder and host are cut at most: as wide as their heads
	leastName = 8 // what is left to the name before holder and host are cut that far
)

// fit cuts what is long, and leaves columns out where it is narrow. The name has all room that is
// left. Holder and host give way to it before it is of no use, and to the columns behind them.
func (s *Screen) fit(rows [][]string) [][]string {
	cell := max(leastCell, s.width/4)
	most := func(i int) int {
		if i > 2 { // only the name, the holder and the host may be long
			return s.width
		}
		return cell
	}
	left, _ := look.Columns(rows, s.width, s.order, most)
	var room int
	for ; ; cell-- {
		for _, row := range rows {
			for i := 1; i < 3; i++ {
				row[i] = ansi.Truncate(row[i], cell, less)
			}
		}
		others, _, _ := strings.Cut(look.Table(look.Only(rows, left[1:])), "\n")
		room = s.width - ansi.StringWidth(others) - 2
		if room >= leastName || cell <= leastCell {
			break
		}
	}
	for _, row := range rows {
		row[0] = ansi.Truncate(row[0], max(len(less)+1, room), less)
	}
	return look.Only(rows, left)
}

// details returns what fits of the lock that is inspected.
func (s *Screen) details() (lines []string) {
	if s.detail == nil {
		return []string{"asking"}
	}
	s.scroll = max(0, min(s.scroll, len(s.detail)-s.body()))
	for _, line := range s.detail[s.scroll:min(s.scroll+s.body(), len(s.detail))] {
		lines = append(lines, s.line(plain, line))
	}
	return lines
}
