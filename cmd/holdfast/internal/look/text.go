package look

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Shown returns other people's text as one word of printable text, quoted and escaped unless it is
// plain. Two texts never look alike. The result moves no cursor, changes no colour, and does not
// reverse the direction of writing.
func Shown(text string) string {
	plain := text != "" && text != "-" && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return !unicode.IsPrint(r) || r == ' ' || r == '"' || r == '\\' ||
				r == unicode.ReplacementChar
		})
	if plain {
		return text
	}
	return strconv.Quote(text)
}

// longestForeign is how much of a foreign value is shown, in bytes.
const longestForeign = 40

// login matches what stands before the @ of an address, as a value of another program may have it.
// It is compiled when it is needed first: most starts of the program show nothing.
var login = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\b([a-zA-Z][a-zA-Z0-9+.-]*://)\S*@`)
})

// longestLogin is how much of a foreign value is searched for logins, in bytes.
const longestLogin = 64 << 10

// longestHolder is how much is shown of the id of a client and a thread of Redisson, in bytes: that
// is a UUID and a number.
const longestHolder = 60

// foreign returns a value that no library of ours has written: quoted, cut and without logins.
func foreign(value string) string { return cut(value, longestForeign) }

func cut(value string, longest int) string {
	value = value[:min(len(value), longestLogin)] // the value may have megabytes
	value = login().ReplaceAllString(value, "$1...@")
	if len(value) <= longest {
		return strconv.Quote(value)
	}
	end := longest
	for end > longest-utf8.UTFMax && !utf8.RuneStart(value[end]) {
		end--
	}
	return strconv.Quote(value[:end]) + "..."
}

// duration returns a span as an operator reads it: in seconds from ten seconds on.
func duration(d time.Duration) string {
	if d < 10*time.Second {
		return max(d, 0).Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// JSONLine returns a value as a line of JSON in printable text. It panics if the value cannot be
// written as JSON.
func JSONLine(value any) []byte {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return append(escapeJSON(line), '\n')
}

// escapeJSON escapes what Go's encoder leaves: everything in a string that is not printable.
func escapeJSON(line []byte) []byte {
	var safe []byte
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		if r == '\n' || unicode.IsPrint(r) && r != unicode.ReplacementChar {
			safe = append(safe, line[:size]...)
		} else if r > 0xffff {
			r -= 0x10000
			safe = fmt.Appendf(safe, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		} else {
			safe = fmt.Appendf(safe, `\u%04x`, r)
		}
		line = line[size:]
	}
	return safe
}

// columns returns how many columns a printable text takes on most terminals, whatever its colour.
func columns(text string) int { return ansi.StringWidth(text) }

// widest is how many columns of a terminal a cell may take for the others to be aligned with it.
const widest = 80

// Table writes rows with aligned columns. A cell that is very long stands as it is, and only its
// own row is out of line: a name of 10 kB must not fill every row with as many spaces.
func Table(rows [][]string) string {
	widths := widthsOf(rows, func(int) int { return math.MaxInt })
	var text strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			text.WriteString(cell)
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", max(0, widths[i]-columns(cell))+gap))
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// gap is how many spaces are between two columns.
const gap = 2

// widthsOf returns how wide the columns are. A cell counts for no more than most says, and for
// nothing if it is very long.
func widthsOf(rows [][]string, most func(column int) int) (widths []int) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if width := min(columns(cell), most(i)); width <= widest {
				widths[i] = max(widths[i], width)
			}
		}
	}
	return widths
}

// Line returns an error's text as one line of printable text.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text)
}
