package pghold

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A request tells of the last one in doubt until one that told it is answered.
//
// Fails if the code is broken like this: an answer, or none but an answer, ends no doubt; an error
// that says that the request had no effect does; doubts are not those of one owner value.
func TestDoubts(t *testing.T) {
	var d doubts
	unknown := &driver.Error{Maybe: true}
	for i, step := range []struct {
		owner string
		late  int64 // that the request has to tell
		err   error
	}{
		{"a", 0, nil},
		{"a", 0, unknown},
		{"b", 0, nil},
		{"a", 2, &driver.Error{}},
		{"a", 2, &driver.QuarantineError{}},
		{"a", 2, unknown},
		{"b", 0, unknown},
		{"a", 6, nil},
		{"a", 0, nil},
		{"b", 7, nil},
		{"b", 0, nil},
	} {
		number, late := d.next(step.owner)
		if number != int64(i+1) || late != step.late {
			t.Errorf("request %d has number %d, and tells of %d; want %d", i+1, number, late,
				step.late)
		}
		d.returned(step.owner, number, late, step.err)
	}
	if len(d.owners) > 0 {
		t.Errorf("doubts stay: %v", d.owners)
	}
}

// Doubts that no request ends, since nobody asks for their claims any more, are dropped when there
// are many, but not before the server would forget them, too.
func TestDoubtsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d doubts
		doubt := func(owner string) {
			number, late := d.next(owner)
			d.returned(owner, number, late, &driver.Error{Maybe: true})
		}
		doubt("old")
		time.Sleep(2 * memory)
		doubt("other")
		if _, late := d.next("old"); late == 0 {
			t.Error("a doubt is forgotten although there are few")
		}
		for range 2 {
			for i := range 2 * maxDoubts {
				doubt(fmt.Sprint(time.Now(), i))
			}
			if n := len(d.owners); n < 2*maxDoubts {
				t.Errorf("%d doubts are remembered; want all %d of now", n, 2*maxDoubts)
			}
			time.Sleep(2 * memory)
			doubt(fmt.Sprint(time.Now()))
			if n := len(d.owners); n > 1 {
				t.Errorf("%d doubts are remembered; want only that of now", n)
			}
		}
		for range 2 * maxDoubts {
			doubt(fmt.Sprint(time.Now()))
			time.Sleep(memory)
		}
		if n := len(d.owners); n > 2*maxDoubts {
			t.Errorf("%d doubts are remembered", n)
		}
	})
}
