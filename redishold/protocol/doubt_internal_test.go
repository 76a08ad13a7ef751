package protocol

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Doubts that no request ends, since nobody asks for their claims any more, are dropped when there
// are many, but not before the server would forget them, too.
func TestDoubtsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d doubts
		doubt := func(owner string) { d.acquired(d.next(owner), &driver.Error{Maybe: true}) }
		doubt("old")
		time.Sleep(2 * memory)
		doubt("other")
		if d.next("old").late == 0 {
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
