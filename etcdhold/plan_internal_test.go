package etcdhold

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// A claim that is among the holders and in the queue, as a request to queue came late, ends as a
// whole.
func TestReleaseOfBoth(t *testing.T) {
	n := layout("x/").names("k")
	at := func(key string) *party {
		return &party{owner: "o", key: key, created: 1, modified: 1, record: record{Shared: true}}
	}
	p := newPlan(n, &state{holders: []*party{at(n.holder("o"))},
		waiters: []*party{at(n.waiter("o"))}}, func(*party) bool { return false })
	answer := p.release("o", nil)
	if answer.state != driver.Held || len(p.removed) != 2 || len(p.admit) != 0 {
		t.Errorf("%v, %d removed, %d let in; want Held, 2, none", answer.state, len(p.removed),
			len(p.admit))
	}
}

// Tokens are compared as texts, also those that a claim may ask for beyond 2^53.
func TestDigits(t *testing.T) {
	for _, token := range []uint64{1, 9, 1<<53 - 1, 1 << 53, 9_999_999_999_999_999, 1<<64 - 2} {
		if digits(token) >= digits(token+1) {
			t.Errorf("%q is not before %q", digits(token), digits(token+1))
		}
	}
}
