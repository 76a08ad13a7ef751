//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

// TestGrantIsToldWithoutItsMessage loses the message of a grant: the holder ends before it is sent,
// or the waiter sees the holder's end before it reads the message. The waiter looks when the holder
// ends, and learns of the grant in that way.
func TestGrantIsToldWithoutItsMessage(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	notices := listen(b)
	for range 3 {
		a := open(t, dir)
		first, second := claim("k"), queued("k")
		acquire(t, a, first)
		want(t, "waiter", acquire(t, b, second), driver.Busy)
		heal := filehold.LoseMessages()
		release(t, a, first)
		heal()
		a.Close()
		granted(t, notices, second)
		release(t, b, second)
	}
}

// TestGrantIsToldOnce has the waiter look at its key after it was told of the grant.
func TestGrantIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	notices := listen(b)
	first, second := claim("k"), queued("k")
	acquire(t, a, first)
	acquire(t, b, second)
	release(t, a, first)
	granted(t, notices, second)
	filehold.Look(b, "k")
	want(t, "second's heartbeat", acquire(t, b, second), driver.Held)
	filehold.Look(b, "k")
	select {
	case n := <-notices:
		t.Errorf("told again: %+v", n)
	default:
	}
}
