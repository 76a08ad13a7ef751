package driver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestSetReadsBack(t *testing.T) {
	five := driver.Set{Nodes: 5, Quorum: 3, Guard: time.Minute}
	moving := five
	moving.Moving = "Q7"
	named := five
	named.Name = "a:1,b:2"
	left := named
	left.Moving, left.From = "moving", "3/2/0/=x"
	for text, set := range map[string]driver.Set{
		"": {}, "5/3/60000": five, "5/3/60000/moving/Q7": moving, "1/1/0": {Nodes: 1, Quorum: 1},
		"5/3/60000/=a:1,b:2": named, "5/3/60000/=a:1,b:2/moving/moving/from/3/2/0/=x": left,
		"5/3/60000/=moving": {Nodes: 5, Quorum: 3, Guard: time.Minute, Name: "moving"},
	} {
		if got := set.Text(); got != text {
			t.Errorf("%v is stored as %q; want %q", set, got, text)
		}
		if got, err := driver.ParseSet(text); err != nil || got != set {
			t.Errorf("%q is read as %v, %v; want %v", text, got, err, set)
		}
	}
	for _, text := range []string{"5", "5/3", "5/3/x", "05/3/1", "5/3/1/2", "5/3/1/moving",
		"5/3/1/moving/", "5/3/1/moving/a/b", "5/3/1/moving/a/moving/b", "5/3/1/=", "5/3/1/=a/b",
		"5/3/1/from/", "5/3/1/=a/=b", "a/b/c", "0/0/0", "5/3/99999999999999999999"} {
		if set, err := driver.ParseSet(text); err == nil {
			t.Errorf("%q is read as %v; want an error", text, set)
		}
	}
	err := &driver.SetError{Want: driver.Set{Nodes: 7, Quorum: 4}, Have: five}
	for _, want := range []string{"7 nodes, quorum 4, guard 0s", "5 nodes, quorum 3, guard 1m0s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if s := moving.String(); !strings.Contains(s, "moved out of") ||
		!strings.Contains(s, "5 nodes") {
		t.Errorf("a set is described as %q; want that it is moved out of 5 nodes", s)
	}
}

// A server takes part for a set even while it remembers its former one, but not while it is moved
// out of it.
func TestSetAdmits(t *testing.T) {
	want := driver.Set{Nodes: 5, Quorum: 3, Guard: time.Minute, Name: "blue"}
	come, moving, other := want, want, want
	come.From, moving.Moving, other.Name = "3/2/0", "Q7", "green"
	for have, admits := range map[driver.Set]bool{want: true, come: true, moving: false,
		other: false, {}: false} {
		if got := have.Admits(want); got != admits {
			t.Errorf("a server of %q admits %q: %v", have.Text(), want.Text(), got)
		}
	}
	if s := come.String(); !strings.Contains(s, "guard 1m0s, set blue") ||
		strings.Contains(s, "3/2") {
		t.Errorf("the set is described as %q; want its guard and name, and no 3/2", s)
	}
}
