package sqltest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// rounds returns a loop of n rounds.
func rounds(n int) func() bool {
	return func() bool {
		n--
		return n >= 0
	}
}

// kept is a side that keeps its value, and the order of the writes.
func kept(name string, order *[]string) side {
	var value int
	return side{
		write: func(v int) error {
			value = v
			*order = append(*order, name)
			return nil
		},
		read: func() (int, error) { return value, nil },
	}
}

// TestInTurns: both sides write as often, and each of them first as often as the other.
func TestInTurns(t *testing.T) {
	var order []string
	run, err := inTurns(rounds(3), kept("b", &order), kept("g", &order))
	if err != nil || len(run[0]) != 3 || len(run[1]) != 3 {
		t.Errorf("%d and %d times, %v; want 3 and 3", len(run[0]), len(run[1]), err)
	}
	if want := strings.Split("bgbgbggbbg", ""); !slices.Equal(order, want) {
		t.Errorf("the order is %q; want %q", order, want)
	}
}

// TestInTurnsMeasuresNoRefusals: a side that fails, or that has not written though it says so, does
// not count as quick.
func TestInTurnsMeasuresNoRefusals(t *testing.T) {
	refused := errors.New("refused")
	for name, bend := range map[string]func(*side){
		"refuses":     func(s *side) { s.write = func(int) error { return refused } },
		"writes not":  func(s *side) { s.write = func(int) error { return nil } },
		"cannot tell": func(s *side) { s.read = func() (int, error) { return 0, refused } },
		"refuses from the third on": func(s *side) {
			write, more := s.write, rounds(2)
			s.write = func(v int) error {
				if more() {
					return write(v)
				}
				return nil
			}
		},
	} {
		for which := range 2 {
			var order []string
			sides := [2]side{kept("b", &order), kept("g", &order)}
			bend(&sides[which])
			if _, err := inTurns(rounds(2), sides[0], sides[1]); err == nil {
				t.Errorf("side %d %s: that is measured", which, name)
			}
		}
	}
}

// TestGuardTable: the medians of times are those of all writes, and the ratios those of the runs.
func TestGuardTable(t *testing.T) {
	var text strings.Builder
	writeTable(&text, []*pair{{store: "store", form: "`Form`", beside: "write", runs: []times{
		{{1 * time.Millisecond, 2 * time.Millisecond, 9 * time.Millisecond},
			{3 * time.Millisecond, 3 * time.Millisecond, 3 * time.Millisecond}},
		{{2 * time.Millisecond}, {8 * time.Millisecond}},
		{{2 * time.Millisecond}, {5 * time.Millisecond}},
	}}})
	const want = "| store | `Form` | write | 2ms | 3ms | 2.50 | 1.50 to 4.00 | 5 |\n"
	if !strings.HasSuffix(text.String(), "\n"+want) {
		t.Errorf("the table is %s; want it to end with %s", &text, want)
	}
	text.Reset()
	if writeTable(&text, nil); text.Len() > 0 {
		t.Errorf("of nothing it is %q", &text)
	}
}
