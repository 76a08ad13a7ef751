package check_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
)

// Holders of the lock of "k" read and write in a store: a with token 10, b with token 20.
func TestGuards(t *testing.T) {
	const store = "file"
	at := func(kind history.Kind, client string, from int64, outcome string) history.Record {
		return history.Record{Kind: kind, Client: client, Op: 1, Name: store, At: ms(from),
			Until: ms(from + 5), Outcome: outcome}
	}
	const write, ok, refused, failed = history.Write, history.Accepted, history.Refused,
		history.Failed
	enter := func(client string, from int64, value uint64) history.Record {
		r := at(history.Enter, client, from, ok)
		r.Value = value
		return r
	}
	// a adds 3, and b adds 5 to what it has read.
	writes := func(client string, from int64, outcome string, value, twin uint64) history.Record {
		r := at(write, client, from, outcome)
		r.Value, r.Twin = value, twin
		return r
	}
	final := func(value, twin uint64) history.Record {
		return history.Record{Kind: history.Final, Name: store, Key: "k", At: ms(9000),
			Value: value, Twin: twin}
	}
	names := func(r history.Record, newest uint64) history.Record {
		r.Newest = newest
		return r
	}
	slow := func(r history.Record) history.Record {
		r.Until = r.At + int64(history.Slow)
		return r
	}
	a, b := hold("a", 1, 10, 1, 2, 990, 0), hold("b", 1, 20, 50, 1005, 2000, 1900)
	late := of(a, enter("a", 10, 0), b, enter("b", 1010, 0), writes("b", 1020, ok, 5, 1))
	tooLate := writes("a", 1030, refused, 3, 1)
	for _, c := range []struct {
		name    string
		records []history.Record
		least   int
		want    check.Guarded // Lost and so on
		found   int           // findings
		excused int           // of them
	}{
		{"nobody is late", of(a, enter("a", 10, 0), writes("a", 20, ok, 3, 1), b,
			enter("b", 1010, 3), writes("b", 1020, ok, 8, 2), final(8, 2)), 0,
			check.Guarded{Writes: 2}, 0, 0},
		{"late and refused", of(late, tooLate, final(5, 1)), 1,
			check.Guarded{Writes: 2, Stale: 1, Lost: 1}, 0, 0},
		{"late and refused, by the token that is there",
			of(late, names(tooLate, 20), final(5, 1)), 1,
			check.Guarded{Writes: 2, Stale: 1, Lost: 1}, 0, 0},
		{"late after a read", of(a, enter("a", 10, 0), b, enter("b", 1010, 0), tooLate,
			writes("b", 1040, ok, 5, 1), final(5, 1)), 1,
			check.Guarded{Writes: 2, Stale: 1, Lost: 1}, 0, 0},
		{"at the same time as the read, either way", of(a, enter("a", 10, 0), b,
			enter("b", 1010, 3), writes("a", 1012, ok, 3, 1), writes("b", 1020, ok, 8, 1),
			final(8, 1)), 0, check.Guarded{Writes: 2, Lost: 1}, 0, 0},
		{"at the same time as the read, and refused", of(a, enter("a", 10, 0), b,
			enter("b", 1010, 0), writes("a", 1007, refused, 3, 1), writes("b", 1020, ok, 5, 1),
			final(5, 1)), 0, check.Guarded{Writes: 2, Lost: 1}, 0, 0},
		{"a twin that was not written is not lost", of(a, enter("a", 10, 0),
			writes("a", 20, ok, 3, 0), final(3, 0)), 0, check.Guarded{Writes: 1}, 0, 0},

		{"not answered for long, and not written", of(a, enter("a", 10, 0),
			slow(writes("a", 20, failed, 3, 1)), final(0, 1)), 0,
			check.Guarded{Writes: 1}, 1, 1},
		{"not answered for long, and written", of(a, enter("a", 10, 0),
			slow(writes("a", 20, failed, 3, 1)), b, enter("b", 1700, 3),
			writes("b", 1710, ok, 8, 2), final(8, 2)), 0, check.Guarded{Writes: 2}, 1, 1},
		{"refused by a read that was not answered", of(a, enter("a", 10, 0), b,
			slow(at(history.Enter, "b", 1010, failed)), tooLate, final(0, 1)), 0,
			check.Guarded{Writes: 1}, 1, 1},
		{"late and not answered", of(late, slow(writes("a", 1030, failed, 3, 1)), final(5, 1)),
			1, check.Guarded{Writes: 2, Lost: 1}, 2, 1},
		{"late and written, and not answered", of(late, slow(writes("a", 1030, failed, 3, 1)),
			final(3, 1)), 0, check.Guarded{Writes: 2, Lost: 1}, 2, 1},

		{"late and accepted", of(late, writes("a", 1030, ok, 3, 1), final(3, 1)), 0,
			check.Guarded{Writes: 2, Stale: 1, Accepted: 1, Lost: 1}, 3, 0},
		{"late and accepted, and lost", of(late, writes("a", 1030, ok, 3, 1), final(5, 1)),
			0, check.Guarded{Writes: 2, Stale: 1, Accepted: 1, Lost: 1}, 2, 0},
		{"late and refused, and written", of(late, tooLate, final(3, 1)), 0,
			check.Guarded{Writes: 2, Stale: 1, Lost: 1}, 1, 0},
		{"late and refused, and written before the next", of(a, enter("a", 10, 0), b,
			enter("b", 1010, 0), tooLate, hold("c", 1, 30, 60, 1100, 2000, 1900),
			enter("c", 1200, 3), writes("c", 1210, ok, 4, 2), final(4, 2)), 0,
			check.Guarded{Writes: 2, Stale: 1}, 1, 0},
		{"two writes that cannot be told apart", of(late, writes("a", 1030, refused, 5, 1),
			final(5, 1)), 0, check.Guarded{Writes: 2, Stale: 1, Lost: 1}, 1, 0},
		{"accepted and not written", of(a, enter("a", 10, 0), writes("a", 20, ok, 3, 1),
			final(0, 1)), 0, check.Guarded{Writes: 1}, 1, 0},
		{"written and forgotten", of(a, enter("a", 10, 0), writes("a", 20, ok, 3, 1), b,
			enter("b", 1010, 0), writes("b", 1020, ok, 5, 2), final(5, 2)), 0,
			check.Guarded{Writes: 2}, 1, 0},
		{"a late read accepted", of(a, b, enter("b", 1010, 0), enter("a", 1020, 0), final(0, 0)),
			0, check.Guarded{}, 1, 0},
		{"refused for no reason", of(a, enter("a", 10, 0), writes("a", 1020, refused, 3, 1),
			final(0, 1)), 0, check.Guarded{Writes: 1}, 1, 0},
		{"refused by a token that is no reason", of(late, names(tooLate, 10), final(5, 1)), 0,
			check.Guarded{Writes: 2, Stale: 1, Lost: 1}, 1, 0},
		{"refused by a token that nobody had", of(late, names(tooLate, 21), final(5, 1)), 0,
			check.Guarded{Writes: 2, Stale: 1, Lost: 1}, 1, 0},
		{"no answer of the guard at once", of(a, enter("a", 10, 0),
			writes("a", 20, failed, 3, 1), final(0, 1)), 0, check.Guarded{Writes: 1}, 1, 0},
		{"fewer than were to be tried", of(late, tooLate, final(5, 1)), 2,
			check.Guarded{Writes: 2, Stale: 1, Lost: 1}, 1, 0},
		{"nothing tried", of(final(0, 0)), 1, check.Guarded{}, 1, 0},
		{"not looked at in the end", of(a, enter("a", 10, 0), writes("a", 20, ok, 3, 1)), 0,
			check.Guarded{Writes: 1, Lost: 1}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := history.Assemble(probed(c.records))
			rules := rules
			rules.Stale = c.least
			c.want.Store = store
			if got := check.Guards(run); !slices.Equal(got, []check.Guarded{c.want}) {
				t.Errorf("counted %+v; want %+v", got, c.want)
			}
			found := check.Checks["guards"](run, rules)
			if len(found) != c.found {
				t.Errorf("%d findings, want %d: %v", len(found), c.found, found)
			}
			if wrong := len(check.Violations(found)); wrong != c.found-c.excused {
				t.Errorf("%d violations, want %d: %v", wrong, c.found-c.excused, found)
			}
			for _, f := range found {
				if f.Store != store {
					t.Errorf("%v is of the store %q", f, f.Store)
				}
			}
		})
	}
}

// A run that had to write to stores, and has written to none, has shown nothing.
func TestGuardsThatNobodyAsked(t *testing.T) {
	rules := rules
	rules.Stale = 1
	if found := check.Checks["guards"](history.Assemble(probed(nil)), rules); len(found) != 1 {
		t.Errorf("found %v", found)
	}
	rules.Stale = 0
	if found := check.Checks["guards"](history.Assemble(probed(nil)), rules); found != nil {
		t.Errorf("found %v where there are no stores", found)
	}
}
