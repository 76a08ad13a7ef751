package watch_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/watch"
	"github.com/holdfast-go/holdfast/driver"
)

// clock is the time of a screen.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

// newScreen returns a screen of a size that has three locks.
func newScreen(width, height int) (*watch.Screen, *clock) {
	c := &clock{time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}
	s := watch.NewScreen("redis://h", "lock:", func(text string) string {
		return strings.ReplaceAll(text, "hunter2", "...")
	}, c.now)
	s.Resize(width, height)
	s.Show(locks(), false)
	return s, c
}

func locks() []look.Key {
	return []look.Key{lock("backup", "zoe", 30, 0), lock("nightly", "adam", 20, 2),
		lock("report", "mia", 10, 1)}
}

func lock(name, label string, lease time.Duration, waiting int) look.Key {
	return look.Key{Name: look.NameOf(name, ""), Full: "lock:" + name,
		Holders: []look.Party{party(label, lease)},
		Waiters: slices.Repeat([]look.Party{party("next", 3)}, waiting)}
}

func party(label string, lease time.Duration) look.Party {
	return look.Party{Owner: driver.Owner{Value: "v", Host: "h", PID: 7, Label: label},
		Lease: lease * time.Second}
}

// shown returns the lines of a screen without their looks. It checks that they fit, and that a
// terminal obeys nothing in them but looks.
func shown(t *testing.T, s *watch.Screen, width, height int) []string {
	t.Helper()
	text := regexp.MustCompile(`\x1b\[[017]m`).ReplaceAllString(s.String(), "")
	if i := strings.IndexFunc(text, func(r rune) bool {
		return r != '\n' && !unicode.IsPrint(r)
	}); i >= 0 {
		t.Errorf("byte %d of %q is not printable", i, text)
	}
	lines := strings.Split(text, "\n")
	if len(lines) != height {
		t.Errorf("%d lines, want %d:\n%s", len(lines), height, text)
	}
	for _, line := range lines {
		if n := ansi.StringWidth(line); n > width {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	return lines
}

// names returns the first word of each row, and the row with the cursor.
func names(t *testing.T, s *watch.Screen) (all []string, cursor string) {
	t.Helper()
	for _, line := range shown(t, s, 80, 24)[3:23] {
		if fields := strings.Fields(line); len(fields) > 0 {
			all = append(all, fields[0])
		}
	}
	for _, line := range strings.Split(s.String(), "\n")[3:23] {
		if rest, ok := strings.CutPrefix(line, "\x1b[7m"); ok {
			cursor += strings.Fields(rest)[0]
		}
	}
	return all, cursor
}

// press presses keys, such as "s s enter", none of which may leave.
func press(t *testing.T, s *watch.Screen, keys string) {
	t.Helper()
	for _, key := range strings.Fields(keys) {
		if s.Press(key) {
			t.Errorf("%s leaves", key)
		}
	}
}

// TestOrder: rows are sorted by each column in turns, both ways, and the cursor stays on its lock.
func TestOrder(t *testing.T) {
	s, _ := newScreen(80, 24)
	press(t, s, "down")
	for _, test := range []struct{ keys, want string }{
		{"", "backup nightly report"},
		{"s", "nightly report backup"}, // the label
		{"s", "backup nightly report"}, // the host, which is the same
		{"s s s", "report nightly backup"},
		{"r", "backup nightly report"},
		{"r s", "nightly report backup"}, // who wait
		{"s r", "report nightly backup"}, // the name again
	} {
		press(t, s, test.keys)
		if got, cursor := names(t, s); strings.Join(got, " ") != test.want || cursor != "nightly" {
			t.Errorf("%q: %q, cursor at %q; want %q", test.keys, got, cursor, test.want)
		}
	}
}

// TestFilter: only rows with the text are shown, whatever column it is in, and esc shows all again.
func TestFilter(t *testing.T) {
	s, _ := newScreen(80, 24)
	for _, test := range []struct{ keys, want, line string }{
		{"/", "backup nightly report", "filter: _"},
		{"M i q", "", "filter: Miq_"},
		{"backspace", "report", "filter: Mi_"},
		{"enter", "report", "/ filter: Mi  esc clear"},
		{"esc", "backup nightly report", "/ filter"},
		{"/ x esc", "backup nightly report", "/ filter"},
		{"/ backspace é up space", "", "filter: é _"},
	} {
		press(t, s, test.keys)
		got, _ := names(t, s)
		lines := shown(t, s, 80, 24)
		if strings.Join(got, " ") != test.want || !strings.Contains(lines[23], test.line) {
			t.Errorf("%q: %q, and %q; want %q", test.keys, got, lines[23], test.want)
		}
	}
	if lines := shown(t, s, 80, 24); !strings.Contains(lines[1], "0 of 3 locks") {
		t.Errorf("says %q", lines[1])
	}
}

// TestInspect: enter asks for the lock under the cursor, and esc goes back. What comes for another
// lock is not shown.
func TestInspect(t *testing.T) {
	s, _ := newScreen(80, 24)
	press(t, s, "end up enter")
	if name, one := s.Wants(); name != "nightly" || !one {
		t.Errorf("wants %q, %v", name, one)
	}
	if lines := shown(t, s, 80, 24); lines[3] != "asking" {
		t.Errorf("shows %q", lines)
	}
	s.ShowOne("backup", locks()[0])
	s.ShowOne("nightly", locks()[1])
	text := strings.Join(shown(t, s, 80, 24), "\n")
	for _, want := range []string{"\nnightly\n", "held by  adam (pid 7 on h)", "waiting  2",
		"esc back"} {
		if !strings.Contains(text, want) {
			t.Errorf("does not show %q:\n%s", want, text)
		}
	}
	press(t, s, "esc")
	if _, one := s.Wants(); one {
		t.Error("esc does not go back")
	}
	if _, cursor := names(t, s); cursor != "nightly" {
		t.Errorf("the cursor is at %q", cursor)
	}
}

// TestLeaving: q leaves unless it is typed into a text, and control-C always leaves.
func TestLeaving(t *testing.T) {
	for _, keys := range []string{"", "enter", "/"} {
		s, _ := newScreen(80, 24)
		press(t, s, keys)
		if s.Press("q") == (keys == "/") {
			t.Errorf("q after %q", keys)
		}
		if !s.Press("ctrl+c") {
			t.Errorf("control-C after %q does not leave", keys)
		}
	}
}

// TestTrouble: an error is shown, without a secret, and with the age of the rest, until all is
// well.
func TestTrouble(t *testing.T) {
	s, c := newScreen(80, 24)
	c.Time = c.Add(90 * time.Second)
	s.Fail(errors.New("refused\n\x1b[2J by hunter2"))
	if lines := shown(t, s, 80, 24); lines[1] !=
		"as it was 1m30s ago: refused ?[2J by ..." {
		t.Errorf("says %q", lines[1])
	}
	if got, _ := names(t, s); len(got) != 3 {
		t.Errorf("shows %q", got)
	}
	s.Show(nil, false)
	if lines := shown(t, s, 80, 24); lines[1] != "0 locks" {
		t.Errorf("says %q", lines[1])
	}
	s = watch.NewScreen("", "", strings.Clone, c.now)
	if lines := shown(t, s, 80, 24); lines[1] != "asking" {
		t.Errorf("says %q", lines[1])
	}
	s.Fail(errors.New("x"))
	if lines := shown(t, s, 80, 24); lines[1] != "no answer yet: x" {
		t.Errorf("says %q", lines[1])
	}
}

// TestLongTrouble: of an error that is too long, the end is shown, too.
func TestLongTrouble(t *testing.T) {
	s, _ := newScreen(80, 24)
	s.Fail(errors.New("backend unavailable: " + strings.Repeat("日本 wrapped: ", 20) +
		"connection refused"))
	if line := shown(t, s, 80, 24)[1]; !strings.HasPrefix(line, "as it was 0s ago: backend unav") ||
		!strings.HasSuffix(line, ": connection refused") || !strings.Contains(line, less) {
		t.Errorf("says %q", line)
	}
}

const less = "..."

// TestAge: what is shown is said to be old when an answer is late and when it was left for a lock,
// and how old it is: a list is no newer because of a lock that was inspected since.
func TestAge(t *testing.T) {
	s, c := newScreen(80, 24)
	after := func(d time.Duration, do func(), want string) {
		t.Helper()
		c.Time = c.Add(d)
		do()
		if lines := shown(t, s, 80, 24); lines[1] != want {
			t.Errorf("says %q, want %q", lines[1], want)
		}
	}
	nothing := func() {}
	after(time.Minute, s.Ask, "3 locks")
	after(time.Second, nothing, "3 locks")
	after(time.Second, nothing, "as it was 1m2s ago: asking")
	after(0, func() { s.Show(locks(), false) }, "3 locks")
	after(time.Minute, func() { press(t, s, "enter") }, "asking")
	after(0, func() { s.ShowOne("backup", locks()[0]) }, "3 locks")
	after(time.Minute, func() { s.Fail(errors.New("x")) }, "as it was 1m0s ago: x")
	after(0, func() { s.ShowOne("backup", locks()[0]) }, "3 locks")
	after(0, func() { press(t, s, "esc") }, "as it was 2m0s ago: asking")
	after(0, func() { s.Fail(errors.New("x")) }, "as it was 2m0s ago: x")
	after(0, func() { s.Show(locks(), false) }, "3 locks")
	after(0, func() { press(t, s, "enter"); s.Fail(errors.New("x")) }, "no answer yet: x")
}

// TestAnySize: with any size, many locks, and names and labels that are long, wide or hostile, the
// lines fit, and the cursor is among them.
func TestAnySize(t *testing.T) {
	var many []look.Key
	for i, text := range []string{"\x1b[2J\u202e", strings.Repeat("x", 1000),
		strings.Repeat("日本", 40), "\xff", "a b"} {
		for j := range 20 {
			many = append(many, lock(fmt.Sprintf("%s%d", text, j), text, time.Duration(i), j))
		}
	}
	for _, width := range []int{1, 2, 10, 40, 80, 300} {
		for _, height := range []int{5, 6, 24, 200} {
			s, _ := newScreen(width, height)
			s.Show(many, true)
			for _, key := range []string{"", "pgdown", "down", "end", "pgup", "s", "home", "/", "x",
				"enter", "up", "enter", "down", "end"} {
				s.Press(key)
				if s.ShowOne("nothing", look.Key{}); key == "enter" {
					if name, one := s.Wants(); one {
						k := lock(name, "\x1b[2J", 1, 30)
						s.ShowOne(name, k)
					}
				}
				shown(t, s, width, height)
				if _, one := s.Wants(); !one && !strings.Contains(s.String(), "\x1b[7m") {
					t.Errorf("%dx%d: no cursor after %s", width, height, key)
				}
			}
		}
	}
}

// TestNarrow: where it is narrow, the name, the holder, the lease and who waits are left, and the
// column that gives the order.
func TestNarrow(t *testing.T) {
	long := lock("tenants/acme/invoices/2026/11", "nightly-recalculation", 30, 7)
	long.Holders[0].Host = "web-7f9c.prod.example.com"
	for _, test := range []struct {
		width     int
		keys      string
		head, row string
	}{
		{40, "", "NAME v HOLDER LEASE WAITING", "tenants/a... nightly... 30s 7"},
		{40, "s s", "NAME HOLDER HOST v LEASE WAITING", "tenan... nig... web... 30s 7"},
		{40, "s s s", "NAME HOLDER PID v LEASE WAITING", "tenan... nigh... 7 30s 7"},
		{60, "s s", "NAME HOLDER HOST v LEASE WAITING",
			"tenants... nightly-reca... web-7f9c.pro... 30s 7"},
		{60, "", "NAME v HOLDER FOR LEASE WAITING",
			"tenants/acme/invoic... nightly-reca... - 30s 7"},
		{120, "", "NAME v HOLDER HOST PID FOR LEASE WAITING", "tenants/acme/invoices/2026/11 " +
			"nightly-recalculation web-7f9c.prod.example.com 7 - 30s 7"},
	} {
		s, _ := newScreen(test.width, 24)
		s.Show([]look.Key{long}, false)
		press(t, s, test.keys)
		lines := shown(t, s, test.width, 24)
		head, row := strings.Fields(lines[2]), strings.Fields(lines[3])
		if strings.Join(head, " ") != test.head || strings.Join(row, " ") != test.row {
			t.Errorf("%d columns, %q:\n%s\n%s", test.width, test.keys, lines[2], lines[3])
		}
	}
}

// TestGone: when the lock under the cursor is gone, the cursor is on the one in its place.
func TestGone(t *testing.T) {
	s, _ := newScreen(80, 24)
	press(t, s, "G")
	s.Show(locks()[:2], false)
	if _, cursor := names(t, s); cursor != "nightly" {
		t.Errorf("the cursor is at %q", cursor)
	}
	s.Show(nil, false)
	press(t, s, "down enter")
	if _, one := s.Wants(); one {
		t.Error("inspects nothing")
	}
}
