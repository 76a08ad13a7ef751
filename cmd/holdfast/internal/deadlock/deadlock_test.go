package deadlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/deadlock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

// parties reads processes, such as "1 2": numbers on one host. One with a minus is gone, and "x" is
// of another library.
func parties(key, text string) (all []look.Party) {
	for _, word := range strings.Fields(text) {
		pid, err := strconv.Atoi(word)
		p := look.Party{Owner: driver.Owner{Value: key + " " + word}}
		if err == nil {
			p.Host, p.PID, p.Label = "h", max(pid, -pid), "label"
		}
		if pid < 0 {
			p.Life = look.Gone
		}
		all = append(all, p)
	}
	return all
}

// keyOf reads a key, such as "a: 1 < 2 3": 1 has it, and 2 and 3 wait.
func keyOf(line string) look.Key {
	full, rest, _ := strings.Cut(line, ": ")
	holders, waiters, _ := strings.Cut(rest, "<")
	return look.Key{Name: look.NameOf(full, ""), Full: full, Holders: parties(full, holders),
		Waiters: parties(full, waiters)}
}

// find returns the cycles of keys, each as processes with what they hold before the colon and wait
// for after it.
func find(lines []string, parents map[int]int) (found []string) {
	g := deadlock.New()
	for _, line := range lines {
		g.Add(keyOf(line))
	}
	g.Link(deadlock.Parents{Host: "h", Of: func(pid int) (int, bool) {
		parent, ok := parents[pid]
		return parent, ok
	}, Waits: func(pid int) bool { return pid < 100 }})
	for _, c := range g.Cycles() {
		var steps []string
		for _, s := range c {
			steps = append(steps, fmt.Sprintf("%s %d %s", s.Holds.Full, s.PID, s.Waits.Full))
		}
		found = append(found, strings.Join(steps, ", "))
	}
	return found
}

// TestCycles: the shortest cycle through each process is found. Processes that can go on, or that
// only wait for a stuck one, are in none.
func TestCycles(t *testing.T) {
	for what, test := range map[string]struct {
		keys    []string
		parents map[int]int
		want    []string
	}{
		"nothing": {},
		"a queue": {keys: []string{"a: 1 < 2 3"}},
		"a chain": {keys: []string{"a: 1 < 2", "b: 2 < 3", "c: 3 < 4"}},
		"two": {keys: []string{"a: 1 < 2", "b: 2 < 1"},
			want: []string{"a 1 b, b 2 a"}},
		"in no order": {keys: []string{"b: 1 < 2", "a: 2 < 1"},
			want: []string{"b 1 a, a 2 b"}},
		"one with itself": {keys: []string{"a: 1 < 1"}},
		"with itself and a permit": {keys: []string{"a: 1 < 1", "s@permit/0: 1 < 3",
			"s@permit/1: 2 < 3", "s@permit/gate2: 3 < ", "x: 3 < 2"}},
		"with itself and more": {keys: []string{"a: 1 2 < 1", "b: 3 < 2"}},
		"who waits behind": {keys: []string{"a: 1 < 2 3", "b: 2 < 1 4", "c: 4 < 5"},
			want: []string{"a 1 b, b 2 a"}},
		"between two": {keys: []string{"a: 1 < 2", "b: 2 < 1", "c: 3 < 2", "d: 5 < 3 4",
			"e: 4 < 5"},
			want: []string{"a 1 b, b 2 a", "e 4 d, d 5 e"}},
		"the shorter": {keys: []string{"a: 1 < 2", "b: 2 < 1 3", "c: 3 < 1"},
			want: []string{"a 1 b, b 2 a", "c 3 b, b 2 a, a 1 c"}},
		"each process": {keys: []string{"a: 1 < 2", "b: 2 < 1 3", "c: 3 < 1", "d: 1 < 4",
			"e: 4 < 3"},
			want: []string{"a 1 b, b 2 a", "c 3 b, b 2 a, a 1 c", "e 4 d, d 1 c, c 3 e"}},
		"three": {keys: []string{"a: 1 < 2", "b: 2 < 3", "c: 3 < 1"},
			want: []string{"a 1 c, c 3 b, b 2 a"}},
		"readers": {keys: []string{"a: 1 2 < 3", "b: 3 < 2"},
			want: []string{"a 2 b, b 3 a"}},
		"who is gone":           {keys: []string{"a: -1 < 2", "b: 2 < 1"}},
		"who was waiting":       {keys: []string{"a: 1 < 2", "b: 2 < -1"}},
		"another library":       {keys: []string{"a: x < 2", "b: 2 < x"}},
		"a key that comes free": {keys: []string{"a:  < 2", "b: 2 < 1"}},
		"a command": {keys: []string{"a: 1 < 4", "b: 2 < 3"},
			parents: map[int]int{3: 9, 9: 1, 4: 2},
			want:    []string{"a 1 ,  3 b, b 2 ,  4 a"}},
		"a command's command": {keys: []string{"a: 1 < 3", "b: 2 < 8"},
			parents: map[int]int{2: 1, 3: 2}, want: []string{"a 1 ,  2 ,  3 a"}},
		"a command that works": {keys: []string{"a: 1 < 4", "b: 2 < 3"},
			parents: map[int]int{3: 1}},
		"a daemon":                {keys: []string{"a: 101 < 2"}, parents: map[int]int{2: 101}},
		"a parent without a lock": {keys: []string{"a: 1 < 2"}, parents: map[int]int{2: 9, 9: 0}},
		"a parent of itself":      {keys: []string{"a: 1 < 2"}, parents: map[int]int{2: 2}},
		"parents in a ring": {keys: []string{"a: 1 < 2"},
			parents: map[int]int{2: 9, 9: 8, 8: 9}},
		"all permits": {keys: []string{"s@permit/0: 1 < 3", "s@permit/1: 2 < 3",
			"s@permit/gate2: 3 < 4",
			"a: 3 < 1 2", "s@permit/scout: 3 < "},
			want: []string{"s@permit/0 1 a, a 3 s@permit/0", "s@permit/1 2 a, a 3 s@permit/1"}},
		"all but one permit": {keys: []string{"s@permit/0: 1 < 3", "s@permit/1: 2 < 3",
			"s@permit/gate2: 3 < ", "a: 3 < 1"}},
		"a permit of which nothing is known": {keys: []string{"s@permit/0: 1 < 3",
			"s@permit/gate2: 3 < ", "a: 3 < 1"}},
		"behind the gate": {keys: []string{"s@permit/0: 1 < 3", "s@permit/gate1: 3 < 4",
			"a: 4 < 1"},
			want: []string{"s@permit/0 1 a, a 4 s@permit/0"}},
	} {
		for range 20 { // the order of a map must not matter
			if got := find(test.keys, test.parents); !slices.Equal(got, test.want) {
				t.Errorf("%s: %q; want %q", what, got, test.want)
				break
			}
		}
	}
}

// TestManyWait: twenty thousand waiters, a ring of a thousand, and many that share one key take
// hardly any time.
func TestManyWait(t *testing.T) {
	g := deadlock.New()
	const ring, queue = 1000, 20_000
	for i := range ring {
		g.Add(keyOf(fmt.Sprintf("ring%d: %d < %d", i, i+1, (i+1)%ring+1)))
	}
	key := look.Key{Name: look.NameOf("queue", ""), Full: "queue", Holders: parties("", "1")}
	for i := range queue {
		key.Waiters = append(key.Waiters, parties("", strconv.Itoa(ring+1+i))...)
	}
	g.Add(key)
	for i := range queue - 1 { // a chain behind the queue
		g.Add(keyOf(fmt.Sprintf("chain%d: %d < %d", i, ring+i+1, ring+i+2)))
	}
	if cycles := g.Cycles(); len(cycles) != 1 || len(cycles[0]) != ring {
		t.Errorf("%d cycles", len(cycles))
	}
}

// TestStill: a cycle is one as long as the same acquisitions hold and wait.
func TestStill(t *testing.T) {
	g := deadlock.New()
	for _, line := range []string{"a: 1 < 2", "b: 2 < 1"} {
		g.Add(keyOf(line))
	}
	cycle := g.Cycles()[0]
	lost := errors.New("no answer")
	for _, test := range []struct {
		a, b string
		want bool
		err  error
	}{
		{"a: 1 < 2", "b: 2 < 1", true, nil},
		{"a: 1 < 3 2", "b: 2 < 1 3", true, nil},
		{"a: 3 < 2", "b: 2 < 1", false, nil},
		{"a: 1 < 2", "b: 2 < 3", false, nil},
		{"a: 1 < 2", "b:  < ", false, nil},
		{"a: 1 < 2", "", false, lost},
	} {
		still, err := cycle.Still(t.Context(), func(_ context.Context,
			full string) (look.Key, error) {
			switch {
			case full == "a":
				return keyOf(test.a), nil
			case test.b == "":
				return look.Key{}, lost
			}
			return keyOf(test.b), nil
		})
		if still != test.want || err != test.err {
			t.Errorf("%q, %q: %v, %v", test.a, test.b, still, err)
		}
	}
}

// TestOtherPeoplesText: names, hosts and labels are shown without anything that a terminal obeys.
func TestOtherPeoplesText(t *testing.T) {
	const nasty = "\x1b[2J\n\u202e\xff"
	party := func(pid int, label string) []look.Party {
		return []look.Party{{Owner: driver.Owner{Value: nasty, Host: nasty, PID: pid,
			Label: label}}}
	}
	g := deadlock.New()
	for i := range 2 {
		full := nasty + strconv.Itoa(i)
		g.Add(look.Key{Name: look.NameOf(full, ""), Full: full, Holders: party(1+i, nasty),
			Waiters: party(2-i, "other"+nasty)})
	}
	cycles := g.Cycles()
	if len(cycles) != 1 {
		t.Fatalf("%d cycles", len(cycles))
	}
	text, line := cycles[0].Text(), cycles[0].JSON()
	if !strings.Contains(text, `, where its label is "other\x1b[2J`) ||
		strings.Count(text, "\n") != 3 || strings.Count(string(line), "\n") != 1 ||
		!json.Valid(line) {
		t.Errorf("shown as %s%s", text, line)
	}
	if i := strings.IndexFunc(text+string(line), func(r rune) bool {
		return r != '\n' && !unicode.IsPrint(r)
	}); i >= 0 {
		t.Errorf("byte %d of %q is not printable", i, text+string(line))
	}
}
