package watch

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Press handles a key: a name such as "up" or "enter", or the character that it types. It reports
// whether to leave.
func (s *Screen) Press(key string) (leave bool) {
	switch {
	case key == "ctrl+c":
		return true
	case s.typing:
		s.typed(key)
	case key == "q":
		return true
	case s.inside:
		s.pressedInside(key)
	default:
		s.pressed(key)
	}
	return false
}

// maxFilter is how many characters a filter may have.
const maxFilter = 100

// typed handles a key while the filter is typed.
func (s *Screen) typed(key string) {
	switch key {
	case "enter":
		s.typing = false
		return
	case "esc":
		s.typing, s.filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(s.filter)
		s.filter = s.filter[:len(s.filter)-size]
	case "space":
		s.filter += " "
	default:
		r, size := utf8.DecodeRuneInString(key)
		if size != len(key) || !unicode.IsPrint(r) ||
			utf8.RuneCountInString(s.filter) >= maxFilter {
			return
		}
		s.filter += key
	}
	s.arrange()
}

// pressed handles a key in the list.
func (s *Screen) pressed(key string) {
	switch key {
	case "s":
		s.order = (s.order + 1) % len(columns)
		s.arrange()
	case "r":
		s.reverse = !s.reverse
		s.arrange()
	case "/":
		s.typing = true
	case "esc":
		s.filter = ""
		s.arrange()
	case "enter":
		if len(s.rows) > 0 {
			s.opened, s.inside = strings.TrimPrefix(s.selected, s.prefix), true
			s.detail, s.scroll, s.described = nil, 0, time.Time{}
		}
	default:
		s.move(s.steps(key))
	}
}

// pressedInside handles a key while a lock is inspected.
func (s *Screen) pressedInside(key string) {
	switch key {
	case "esc", "enter", "backspace":
		s.inside, s.detail, s.left = false, nil, true
	default:
		s.scroll = max(0, min(s.scroll+s.steps(key), len(s.detail)-s.body()))
	}
}

// steps is how far a key moves.
func (s *Screen) steps(key string) int {
	const far = 1 << 30
	switch key {
	case "up", "k":
		return -1
	case "down", "j":
		return 1
	case "pgup":
		return -s.body()
	case "pgdown":
		return s.body()
	case "home", "g":
		return -far
	case "end", "G":
		return far
	}
	return 0
}
