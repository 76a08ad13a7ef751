package quorum_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// shelf is a node that shows these entries, whatever it has.
type shelf struct {
	*memhold.Backend
	entries []driver.Entry
}

func (s *shelf) List(context.Context, string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		for _, e := range s.entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s *shelf) Inspect(_ context.Context, key string) (driver.Entry, error) {
	for _, e := range s.entries {
		if e.Key == key {
			return e, nil
		}
	}
	return driver.Entry{Key: key}, nil
}

// shelves returns a Quorum of nodes that show these entries.
func shelves(t *testing.T, entries ...[]driver.Entry) *quorum.Quorum {
	t.Helper()
	var nodes []driver.Backend
	for _, e := range entries {
		nodes = append(nodes, &shelf{memhold.New(), e})
	}
	q, err := quorum.New(nodes, quorum.WithGuard(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

// A node may list a key twice. That is no majority.
func TestKeyThatANodeListsTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		held := func(key string) driver.Entry {
			return driver.Entry{Key: key, Holder: driver.Party{Owner: "o", ExpiresIn: time.Minute}}
		}
		q := shelves(t, []driver.Entry{held("twice"), held("both"), held("twice")},
			[]driver.Entry{held("both")}, nil)
		var got []string
		for e, err := range q.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Key)
		}
		if len(got) != 1 || got[0] != "both" {
			t.Errorf("lists %q; want %q", got, "both")
		}
	})
}

// A key that never ends on a majority counts as held for ever, even with an empty value. If it is
// on fewer nodes, it is held until it has ended on a majority. A value that was cut is shown as
// cut.
func TestKeysWithoutAnEndAreShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		endless := func(owner string) driver.Party {
			return driver.Party{Owner: owner, Endless: true}
		}
		entry := func(key string, p driver.Party) driver.Entry {
			return driver.Entry{Key: key, Holder: p}
		}
		ends := driver.Party{Owner: "o", ExpiresIn: time.Second}
		cut := driver.Party{Owner: "x", Cut: true, Endless: true}
		q := shelves(t,
			[]driver.Entry{entry("empty", endless("")), entry("mixed", endless("o")),
				entry("most", ends), entry("cut", cut)},
			[]driver.Entry{entry("empty", endless("")), entry("mixed", ends),
				entry("most", endless("o")), entry("cut", cut)},
			[]driver.Entry{entry("mixed", ends), entry("most", endless("o"))})
		want := map[string]driver.Party{"empty": endless(""), "mixed": ends, "most": endless("o"),
			"cut": cut, "free": {}}
		for key, holder := range want {
			if e, err := q.Inspect(t.Context(), key); err != nil || e.Holder != holder {
				t.Errorf("Inspect(%q) = %+v, %v; want the holder %+v", key, e, err, holder)
			}
		}
		delete(want, "free")
		for e, err := range q.List(t.Context(), "") {
			if err != nil || e.Holder != want[e.Key] {
				t.Errorf("lists %+v, %v; want the holder %+v", e, err, want[e.Key])
			}
			delete(want, e.Key)
		}
		if len(want) > 0 {
			t.Errorf("does not list %+v", want)
		}
	})
}
