package memhold_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// claim makes a claim with a TTL of 30 s that queues.
func claim(key, owner string) driver.Claim {
	return driver.Claim{Key: key, Owner: owner, TTL: 30 * time.Second, Queue: true}
}

func acquire(t *testing.T, b driver.Backend, c driver.Claim, want driver.State) driver.Result {
	t.Helper()
	r, err := b.Acquire(t.Context(), c)
	if err != nil || r.State != want {
		t.Fatalf("Acquire(%q, %q) = %v, %v; want %v", c.Key, c.Owner, r, err, want)
	}
	return r
}

func TestExpiryHandsOverByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New()
		defer b.Close()
		var notices []driver.Notice
		defer b.Notify(func(n driver.Notice) { notices = append(notices, n) })()
		a, c := claim("k", "a"), claim("k", "c")
		a.TTL = 4 * time.Second
		first := acquire(t, b, a, driver.Held)
		acquire(t, b, c, driver.Busy)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if len(notices) != 1 || notices[0].Owner != "c" || notices[0].Token <= first.Token {
			t.Fatalf("notices after the holder expired: %+v", notices)
		}
	})
}
