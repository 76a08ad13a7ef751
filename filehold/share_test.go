//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestR2_KilledSharersFreeAtOnce kills processes that share a key, in every order. The waiter gets
// the key when the last one is dead, and not before: whether they came one by one, or were let in
// together while it waited behind the last of them.
func TestR2_KilledSharersFreeAtOnce(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		for _, together := range []bool{false, true} {
			dir := t.TempDir()
			b := open(t, dir)
			notices := listen(b)
			writer, readers := claim("k"), []driver.Claim{shared("k"), shared("k"), shared("k")}
			line := startAll(t, dir, len(readers))
			if together {
				want(t, "first", acquire(t, b, writer), driver.Held)
			}
			for i, p := range line {
				p.acquire(readers[i])
			}
			c := queued("k")
			want(t, "waiter", acquire(t, b, c), driver.Busy)
			if together {
				want(t, "first", release(t, b, writer), driver.Held)
				for i, p := range line {
					granted(t, p.notices, readers[i])
					want(t, "let in", p.renew(readers[i]), driver.Held)
				}
			}
			for n, i := range order {
				want(t, "sharer", line[i].renew(readers[i]), driver.Held)
				want(t, "too early", renew(t, b, c)[0], driver.Lost)
				line[i].kill()
				if n == 0 {
					want(t, "dead sharer's renewal", renew(t, b, readers[i])[0], driver.Lost)
				}
			}
			granted(t, notices, c)
			want(t, "waiter's renewal", renew(t, b, c)[0], driver.Held)
			want(t, "waiter's release", release(t, b, c), driver.Held)
			b.Close()
			tidy(t, dir)
		}
	}
}

// TestKilledWriterLetsSharersIn kills a writer that waits behind a sharer: the shared claims behind
// the writer come in.
func TestKilledWriterLetsSharersIn(t *testing.T) {
	dir := t.TempDir()
	b, p := open(t, dir), start(t, dir)
	notices := listen(b)
	x, y, z := shared("k"), shared("k"), shared("k")
	want(t, "first", acquire(t, b, x), driver.Held)
	want(t, "writer", p.acquire(queued("k")), driver.Busy)
	want(t, "second", acquire(t, b, y), driver.Busy)
	want(t, "third", acquire(t, b, z), driver.Busy)
	p.kill()
	n, m := granted(t, notices, y), granted(t, notices, z)
	if m.Token <= n.Token {
		t.Errorf("tokens %d and %d; want tokens that rise", n.Token, m.Token)
	}
}

// TestCloseKeepsTheLongestShare closes a Backend with two leases on a key: the longer one
// goes on.
func TestCloseKeepsTheLongestShare(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	x, y := shared("k"), shared("k")
	want(t, "long", acquire(t, a, x), driver.Held)
	y.TTL = time.Millisecond
	want(t, "short", acquire(t, a, y), driver.Held)
	a.Close()
	if r := acquire(t, b, claim("k")); r.State != driver.Busy || r.Holder != x.Owner {
		t.Errorf("after Close: %+v; want it held by %q", r, x.Owner)
	}
}
