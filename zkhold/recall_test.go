//go:build unix

package zkhold_test

import (
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zkhold"
)

// pair acquires the key and releases it.
func pair(t *testing.T, b driver.Backend, key string) driver.Token {
	t.Helper()
	c := claim(key)
	token := acquire(t, b, c, driver.Held).Token
	release(t, b, c, driver.Held)
	return token
}

// TestRecall: a Backend that is alone with a slot does not read it again until somebody else comes.
// It sees at once that others have been there.
func TestRecall(t *testing.T) {
	url := newURL(t)
	r := new(recorder)
	b, other := open(t, url, zkhold.WithDialer(r.dial)), open(t, url)
	slot := zkhold.SlotPath(t, url, "k")
	reads := func() (n int) {
		for _, sent := range r.take() {
			if sent == (request{opGet, slot}) {
				n++
			}
		}
		return n
	}
	alone := func() {
		t.Helper()
		// A pause of the machine may be longer than a slot counts as known.
		for range 1000 {
			pair(t, b, "k")
			if reads() == 0 {
				return
			}
		}
		t.Fatal("it goes on to read the slot that nobody else changes")
	}
	alone()
	token := pair(t, other, "k")
	r.take()
	if next := pair(t, b, "k"); next <= token {
		t.Errorf("token %d follows %d of somebody else", next, token)
	}
	if n := reads(); n < 2 {
		t.Errorf("%d reads of a slot that somebody else has changed, for two calls", n)
	}

	// The key has a holder or a waiter that the Backend does not know.
	alone()
	held := claim("k")
	acquire(t, other, held, driver.Held)
	if got := acquire(t, b, claim("k"), driver.Busy); got.Holder != held.Owner {
		t.Errorf("the holder is %q; want %q", got.Holder, held.Owner)
	}
	release(t, other, held, driver.Held)
	alone()
	mine, waits := claim("k"), queued("k")
	acquire(t, b, mine, driver.Held)
	acquire(t, other, waits, driver.Busy)
	release(t, b, mine, driver.Held)
	acquire(t, other, waits, driver.Held)
	release(t, other, waits, driver.Held)

	// Its own node is gone: the claim is lost, and somebody else may have had the key since.
	alone()
	lost := claim("k")
	acquire(t, b, lost, driver.Held)
	for _, node := range zkhold.HolderNodes(t, url, direct(t), "k") {
		if err := direct(t).Delete(node, -1); err != nil {
			t.Fatal(err)
		}
	}
	release(t, b, lost, driver.Lost)

	// The slot is made anew.
	alone()
	c := direct(t)
	if err := c.Delete(slot, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(slot, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	pair(t, b, "k")
	if !slices.Contains(r.take(), request{opGet, slot}) {
		t.Error("it has not read a slot that is new")
	}
}
